package turn

// The defences that the model test takes out, one at a time, to show that it
// sees what each is for. In the ordinary build mutant is the constant noMutant
// and the compiler drops them all.
const (
	noMutant          = iota
	mutantNoRecheck   // who releases does not look for submissions afterwards
	mutantRetakeBlind // who takes the turn back after releasing does not look whether another has it
	mutantNoArm       // nobody arms before leaving
	mutantMuteBell    // the word becomes rung, but no bell is written
	mutantPassQuiet   // a driver passes the turn to the loop without the bell
	mutantDropWanted  // who leaves does not see that the turn is wanted
	mutantDriveOn     // a driver does not look whether the loop is needed while it finds work
	mutantShyEvent    // the loop, woken by an event, does not wait for a driver
	mutantShyTimer    // the loop, woken by a timer, does not wait for a driver
	mutantNoErrands   // a driver leaves without looking for errands
	mutantTiredOffer  // a driver that found nothing offers the turn
	mutantOfferStay   // a driver goes on after its offer was accepted
	mutantStandHasty  // a waiter does not wait for the leaver at its seat
	mutantWatchGone   // a loop that ends its spinning while a driver holds does not say so
	mutantWatchStore  // it says so without looking at what else the word says
	mutantWatchDeaf   // a loop that spins does not look at its channels
	mutantWatchShy    // a loop that spins does not want the turn for an errand
	mutantWatchLeaves // a loop that spins leaves the turn to others for good
	mutantBeginHeld   // who begins takes the turn though another has it
	mutantLeaveBare   // who began, and has its result, leaves without arming or looking again
	mutantResumeParks // who began parks without driving, so holding the turn
)
