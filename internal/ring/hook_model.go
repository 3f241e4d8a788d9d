//go:build verbena_model

package ring

// others is the model test's: what other goroutines do at a yield. Nil outside of
// it.
var others func()

// yield is called before a step that others may see, and where a goroutine that is
// descheduled may be overtaken.
func yield() {
	if others != nil {
		others()
	}
}

// fresh is a yield where nothing that was read before, since the operation began, has any
// influence any more.
func fresh() {
	if current != nil {
		current.knows = current.base
	}
	yield()
}
