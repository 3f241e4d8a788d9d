//go:build verbena_model

package ring

// others is the model test's: what other goroutines do at a yield. Nil outside of
// it.
var others func()

// yield is called where a goroutine that is descheduled may be overtaken.
func yield() {
	if others != nil {
		others()
	}
}
