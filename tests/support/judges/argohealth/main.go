// Argohealth runs a health check as Argo CD does (util/lua): gopher-lua, with no more than the libraries package, base
// and table, and within a second. Stdin: {"script": "...", "objects": [...]}; stdout: one health, as JSON, a line.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	lua "github.com/yuin/gopher-lua"
)

func value(state *lua.LState, given any) lua.LValue {
	switch known := given.(type) {
	case bool:
		return lua.LBool(known)
	case float64:
		return lua.LNumber(known)
	case string:
		return lua.LString(known)
	case []any:
		table := state.NewTable()
		for _, item := range known {
			table.Append(value(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, item := range known {
			table.RawSetString(key, value(state, item))
		}
		return table
	}
	return lua.LNil
}

func health(script string, object any) (map[string]string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return nil, err
		}
	}
	limited, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(limited)
	state.SetGlobal("obj", value(state, object))
	if err := state.DoString(script); err != nil {
		return nil, err
	}
	told, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("the check returned a %s, not a table", state.Get(-1).Type())
	}
	found := map[string]string{}
	told.ForEach(func(key, item lua.LValue) { found[key.String()] = item.String() })
	return found, nil
}

func main() {
	var given struct {
		Script  string
		Objects []any
	}
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	out := json.NewEncoder(os.Stdout)
	for _, object := range given.Objects {
		told, err := health(given.Script, object)
		if err != nil {
			told = map[string]string{"error": err.Error()}
		}
		_ = out.Encode(told)
	}
}
