//go:build verbena_model

package actor

// switchTo is the model test's: it lets another of its goroutines go first. Nil
// outside of it.
var switchTo func(at string)

// yield is called before every step on the word.
func yield(at string) {
	if switchTo != nil {
		switchTo(at)
	}
}

// hired is the model test's: it starts a worker in the pool's place. Nil outside of it.
var hired func(fn func())

// hires tells whether the model has started a worker.
func hires(fn func()) bool {
	if hired == nil {
		return false
	}
	hired(fn)
	return true
}

// mutant takes out a defence, to see that the model misses it.
var mutant = mutantNone

// The defences that can be taken out.
const (
	mutantNone       = iota
	mutantNoRescan   // a wake that finds the actor running leaves no mark
	mutantBlindRest  // rest does not look whether there is a mark
	mutantNoLastLook // a worker leaves without looking once more
)
