package runtime

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Rule: a nil function panics in the call that gets it, and not later in a reactor, where it would end the process.
func TestANilFunctionPanicsInItsCall(t *testing.T) {
	rt := mustOpen(t, Config{})
	for name, call := range map[string]func(){
		"WatchDevice": func() { rt.WatchDevice(nil) },
		"After":       func() { rt.After(time.Hour, nil) },
		"Handle":      func() { rt.Handle(Future{}, nil) },
		"Then":        func() { Future{}.Then(nil) },
	} {
		func() {
			defer func() {
				if v := fmt.Sprint(recover()); !strings.Contains(v, name+" of a nil function") {
					t.Errorf("%s of a nil function panics with %q", name, v)
				}
			}()
			call()
		}()
	}
}
