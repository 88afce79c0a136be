module radix-islands.dev/tests/judges

go 1.24.0

require (
	github.com/grafana/grafana-foundation-sdk/go v0.0.22
	github.com/yuin/gopher-lua v1.1.1
)
