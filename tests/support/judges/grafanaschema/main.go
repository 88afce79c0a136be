// Grafanaschema reads a dashboard on stdin into Grafana's own types, strictly: a field that they do not have, that has
// another type or that is missing is said on stdout, a line each. Silence is consent.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	runtime := cog.NewRuntime()
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(table.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	raw, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	var read dashboard.Dashboard
	for _, err := range []error{read.UnmarshalJSONStrict(raw), read.Validate()} {
		if err != nil && err.Error() != "" { // an empty list of errors is not nil
			fmt.Println(err)
		}
	}
	var named struct{ Panels []struct{ Type string } }
	_ = json.Unmarshal(raw, &named) // what is wrong with it was said above
	for number, panel := range named.Panels {
		if _, known := cog.ConfigForPanelcfgVariant(panel.Type); !known && panel.Type != "row" {
			fmt.Printf("panels[%d].type: nobody here knows %q, so its options went unread\n", number, panel.Type)
		}
	}
}
