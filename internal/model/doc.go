// Package model runs real code through every interleaving of its goroutines.
//
// The code calls the hooks of this package before each step that others may see: [Yield]
// before an access to a shared word, [Block] before a wait. In the ordinary build they are
// nothing, and the compiler drops them (model_off.go). With -tags verbena_model (model_on.go)
// they stop a goroutine of a [World], which is a coroutine then, and [Explore] chooses who goes
// on. Outside of a World they are nothing there too.
//
// A state is what is shared plus, for each goroutine, where it stands and what it knows: what
// it read since it last said that it forgets ([Mark], [Fresh], [Forget]). A step depends on its
// goroutine and what is shared only, so its outcome is learned once for each pair, by running
// the real code, and looked up for all the states that have that pair. To run it the world is
// built anew and replayed to the state, since a coroutine cannot be copied. A replay that comes
// to another state than was looked up is reported: somebody forgot what matters. (Not every such
// mistake is seen: two ways to one state, of which one is followed, may differ.)
//
// A step is what lies between two stops. A load followed by a CAS of the same word that is
// repeated when it fails is one step: it takes effect where the CAS succeeds, or where the load
// showed that nothing is to be done. Plain and atomic accesses are steps alike, in one order
// that all see; that plain ones are ordered by the atomics around them is the race detector's
// to say.
//
// In every state [World.Check] holds; where nobody can go on the world has come to the end that
// [World.End] wants; and no state can be reached from itself, so that every schedule ends, a
// malicious one too. Hence all that must happen happens. What breaks a rule is told by the
// shortest way there.
//
// That a model sees what a line is for is shown by taking the line out: package mutate.
package model
