package ring

import (
	"errors"
	"fmt"
	"testing"
)

// A model of the line of Slots. Every access to shared memory is one step, and
// the steps run in every order. Actors get a slot, or wait for one, hold it and give it back; some
// of them may give up whenever they wait; one more may close.

const maxActors = 4

type slotStep uint8

const (
	slotLook    slotStep = iota // Get: load waiting
	slotTake                    // Get: the list
	slotEnter                   // Wait: make the room
	slotOpen                    // Wait: load closed
	slotJoin                    // Wait: waiting.Add(1)
	slotWait                    // select
	slotHold                    // has a slot
	slotPut                     // the list
	slotPutLook                 // Put: load waiting
	slotLeave                   // leave: load waiting
	slotStrike                  // leave: swap waiting, if it has not changed
	slotToken                   // leave: receive the slot meant for it
	slotEnd

	// handOut, in the actor that runs it
	handLook   // load waiting
	handTake   // the list
	handCount  // load waiting
	handStrike // swap waiting, if it has not changed
	handSend   // send the slot
	handBack   // put it back on the list
)

type slotActor struct {
	at, after slotStep // after: where it goes on when handOut is over
	saw       int8
}

type slotState struct {
	list, waiting, handed int8
	closed, closer        bool // closer: Close is still to come
	room, closing, done   bool // closing: Close has still to look for the room; done: it was closed
	a                     [maxActors]slotActor
}

type slotModel struct {
	n       int8
	actors  int
	patient int // the actors below this index never give up
	closer  bool

	// Wrong versions.
	blindPut   bool // a goroutine that gives back does not look for waiters
	blindJoin  bool // the first waiter does not look at the list
	leaveToken bool // a leaver does not take the slot meant for it
	blindLeave bool // a leaver takes one from waiting whatever its value
	handOnce   bool // handOut puts a slot back and does not look again
	lateRoom   bool // a waiter looks at closed before it makes the room

	seen map[slotState]bool
}

func (m *slotModel) steps(s slotState, yield func(next slotState, free bool)) {
	if s.closer {
		n := s
		n.closer, n.closed, n.closing = false, true, true
		yield(n, true)
	}
	if s.closing {
		n := s
		n.closing, n.done = false, s.room
		yield(n, true)
	}
	enter := slotEnter
	if m.lateRoom {
		enter = slotOpen
	}
	for i := range m.actors {
		n := s
		a, saw := &n.a[i], s.a[i].saw
		hand := func(after slotStep) { a.at, a.after = handLook, after }
		switch s.a[i].at {
		case slotLook:
			if a.at = slotTake; s.waiting > 0 {
				a.at = enter
			}
		case slotTake:
			if a.at = enter; s.list > 0 {
				n.list--
				a.at = slotHold
			}
		case slotEnter:
			n.room = true
			if a.at = slotOpen; m.lateRoom {
				a.at = slotJoin
			}
		case slotOpen:
			switch {
			case s.closed:
				a.at = slotEnd
			case m.lateRoom:
				a.at = slotEnter
			default:
				a.at = slotJoin
			}
		case slotJoin:
			n.waiting++
			if a.at = slotWait; n.waiting == 1 && !m.blindJoin {
				hand(slotWait)
			}
		case slotWait:
			if i >= m.patient || s.done {
				a.at = slotLeave
				yield(n, s.done)
			}
			if s.handed == 0 {
				continue
			}
			n.handed--
			a.at = slotHold
		case slotHold:
			a.at = slotPut
		case slotPut:
			n.list++
			if a.at = slotPutLook; m.blindPut {
				a.at = slotEnd
			}
		case slotPutLook:
			if a.at = slotEnd; s.waiting > 0 {
				hand(slotEnd)
			}
		case slotLeave:
			if m.blindLeave {
				n.waiting--
				a.at = slotEnd
				break
			}
			if a.saw, a.at = s.waiting, slotStrike; s.waiting == 0 {
				if a.at = slotToken; m.leaveToken {
					a.at = slotEnd
				}
			}
		case slotStrike:
			a.saw, a.at = 0, slotLeave
			if s.waiting == saw {
				n.waiting--
				a.at = slotEnd
			}
		case slotToken:
			if s.handed == 0 {
				continue
			}
			n.handed--
			a.at = slotPut
		case handLook:
			if a.at = handTake; s.waiting == 0 {
				a.at = a.after
			}
		case handTake:
			if a.at = handCount; s.list > 0 {
				n.list--
			} else {
				a.at = a.after
			}
		case handCount:
			if a.saw, a.at = s.waiting, handStrike; s.waiting == 0 {
				a.at = handBack
			}
		case handStrike:
			a.saw, a.at = 0, handCount
			if s.waiting == saw {
				n.waiting--
				a.at = handSend
			}
		case handSend:
			n.handed++
			a.at = handLook
		case handBack:
			n.list++
			if a.at = handLook; m.handOnce {
				a.at = a.after
			}
		case slotEnd:
			continue
		}
		if a.at == a.after {
			a.after = 0
		}
		yield(n, true)
	}
}

// check verifies the invariants.
func (m *slotModel) check(s slotState) error {
	var holders, waiters, owed int8
	for _, a := range s.a[:m.actors] {
		switch at := a.at; at {
		case slotHold, slotPut:
			holders++
		case slotWait, slotLeave, slotStrike, slotToken:
			if waiters++; at == slotWait && s.closed && !s.closing && !s.done {
				return errors.New("a goroutine waits in a line that was closed")
			}
		case handTake, handCount, handStrike, handSend, handBack, handLook:
			if at == handCount || at == handStrike || at == handSend || at == handBack {
				holders++ // a slot in handOut's hands
			}
			if at == handSend {
				owed++
			}
			if a.after == slotWait {
				waiters++
			}
		}
	}
	switch {
	case holders+s.list+s.handed != m.n:
		return fmt.Errorf("%d held, %d free and %d handed of %d slots", holders, s.list, s.handed, m.n)
	case waiters != s.waiting+s.handed+owed:
		return fmt.Errorf("%d wait, but waiting %d, %d handed, %d owed", waiters, s.waiting, s.handed, owed)
	}
	return nil
}

func (m *slotModel) explore(s slotState) error {
	if m.seen[s] {
		return nil
	}
	m.seen[s] = true
	if err := m.check(s); err != nil {
		return fmt.Errorf("%w in %+v", err, s)
	}
	var err error
	stuck := true
	m.steps(s, func(next slotState, free bool) {
		stuck = stuck && !free
		if err == nil {
			err = m.explore(next)
		}
	})
	if err != nil || !stuck {
		return err
	}
	for i, a := range s.a[:m.actors] {
		if a.at != slotEnd {
			return fmt.Errorf("actor %d is stuck in %+v", i, s)
		}
	}
	if s.list != m.n || s.handed != 0 || s.waiting != 0 {
		return fmt.Errorf("a slot was lost or made: %+v", s)
	}
	return nil
}

func (m *slotModel) run() error {
	m.seen = map[slotState]bool{}
	return m.explore(slotState{list: m.n, closer: m.closer})
}

// Rule: in every order of steps there are never more holders than slots, no actor waits forever
// beside a free slot though none has to give up, and all slots come back.
func TestLineEveryInterleaving(t *testing.T) {
	states := 0
	for n := int8(1); n <= 2; n++ {
		for actors := 2; actors <= maxActors; actors++ {
			for patient := 0; patient <= actors; patient++ {
				for _, closer := range []bool{false, true} {
					if actors == maxActors && (closer || patient > 1 && patient < actors) {
						continue // these take seconds, and lie between the others
					}
					m := slotModel{n: n, actors: actors, patient: patient, closer: closer}
					if err := m.run(); err != nil {
						t.Errorf("%d slots, %d actors, %d patient, closer %v: %v", n, actors, patient, closer, err)
					}
					states += len(m.seen)
				}
			}
		}
	}
	t.Logf("%d states", states)
}

// The model can fail: it finds each missing check.
func TestLineModelFindsMistakes(t *testing.T) {
	for name, m := range map[string]slotModel{
		"who gives back does not look for waiters":        {n: 1, actors: 2, patient: 2, blindPut: true},
		"the first who waits does not look at the list":   {n: 1, actors: 2, patient: 2, blindJoin: true},
		"a leaver ignores a slot meant for it":            {n: 1, actors: 3, leaveToken: true},
		"a leaver withdraws without looking":              {n: 1, actors: 3, blindLeave: true},
		"who puts a slot back does not look once more":    {n: 1, actors: 4, patient: 3, handOnce: true},
		"who puts a slot back does not look, two of them": {n: 2, actors: 4, patient: 3, handOnce: true},
		"who waits looks at closed too early":             {n: 1, actors: 2, patient: 2, closer: true, lateRoom: true},
	} {
		if err := m.run(); err == nil {
			t.Errorf("%s: not found", name)
		}
	}
}
