// Package model runs real code through every interleaving of its goroutines.
//
// The code calls the hooks of this package before each step that other goroutines may see: [Yield]
// before an access to a shared word, [Block] before a wait. In the ordinary build the hooks are
// empty, and the compiler drops them (model_off.go). With -tags verbena_model (model_on.go) they
// stop a goroutine of a [World], which is a coroutine then, and [Explore] chooses which one runs
// next. Outside of a World they do nothing in that build either.
//
// A state is the shared data plus, for each goroutine, its position and its knowledge: the values
// it read since it last forgot ([Mark], [Fresh], [Forget]). A step depends only on its goroutine
// and the shared data, so its outcome is learned once for each such pair, by running the real code,
// and looked up for every state with that pair. To run a step the world is built anew and replayed
// to the state, since a coroutine cannot be copied. A replay that reaches another state than was
// looked up is reported: a goroutine forgot a value that matters. (Some such mistakes go unnoticed:
// two paths to one state may differ, and only one is followed.)
//
// A step is the code between two stops. A load followed by a CAS of the same word that is repeated
// if it fails is one step: it takes effect where the CAS succeeds, or where the load showed that
// there is nothing to do. Plain and atomic accesses are steps alike, in one order that all
// goroutines see; the race detector checks that atomics order the plain ones.
//
// In every state [World.Check] holds; where no goroutine can go on, [World.End] holds; and no state
// can be reached from itself, so every schedule ends, even a malicious one. Hence everything that
// must happen happens. A broken rule is reported with the shortest path to it.
//
// Package mutate shows that a model notices a missing line of code, by removing the line.
package model
