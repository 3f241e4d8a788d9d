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

// mutant takes out a defence, to see that the model misses it.
var mutant = mutantNone

// The defences that can be taken out.
const (
	mutantNone      = iota
	mutantNoRescan  // a wake that finds the actor running leaves no mark
	mutantBlindRest // rest does not look whether there is a mark
)
