package ring

import (
	"fmt"
	"testing"
)

// This is Credits with every access to shared memory as one step, run in every
// order: acquirers that take a credit, hold it and give it back; some of them may
// give up whenever they wait; and possibly one that closes.

const maxActors = 4

type step uint8

const (
	atStart   step = iota // Acquire: load closed
	atTake                // count.Add(-1)
	atWait                // select
	atLeave               // leave: load count
	atSwap                // leave: swap count, if still what was loaded
	atToken               // leave: receive the token
	atHold                // holds a credit
	atRelease             // count.Add(1)
	atSend                // send the token
	atEnd
)

type creditState struct {
	count, tokens int8
	closed        bool
	at            [maxActors]step
	saw           [maxActors]int8 // what atLeave loaded
	closer        bool            // Close is still to come
}

type creditModel struct {
	n       int8
	actors  int
	patient int // the first so many never give up
	closer  bool

	leaveBlindly bool // a wrong version: leave adds 1 whatever count is
	leaveToken   bool // a wrong version: leave does not take the token meant for it

	seen map[creditState]bool
}

// steps are the states that one step leads to; free says that it is not a giving
// up, which nobody has to do.
func (m *creditModel) steps(s creditState, yield func(next creditState, free bool)) {
	if s.closer {
		n := s
		n.closer, n.closed = false, true
		yield(n, true)
	}
	for i := range m.actors {
		n := s
		switch s.at[i] {
		case atStart:
			n.at[i] = atTake
			if s.closed {
				n.at[i] = atEnd
			}
		case atTake:
			n.count--
			n.at[i] = atWait
			if n.count >= 0 {
				n.at[i] = atHold
			}
		case atWait:
			if i >= m.patient {
				n.at[i] = atLeave
				yield(n, false)
			}
			if s.closed {
				n.at[i] = atLeave
				yield(n, true)
			}
			if s.tokens == 0 {
				continue
			}
			n = s
			n.tokens--
			n.at[i] = atHold
		case atLeave:
			n.saw[i] = s.count
			n.at[i] = atSwap
			if m.leaveBlindly {
				n.count++
				n.at[i] = atEnd
			} else if s.count >= 0 {
				n.at[i] = atToken
				if m.leaveToken {
					n.at[i] = atEnd
				}
			}
		case atSwap:
			n.at[i] = atLeave
			if s.count == s.saw[i] {
				n.count++
				n.at[i] = atEnd
			}
			n.saw[i] = 0
		case atToken:
			if s.tokens == 0 {
				continue
			}
			n.tokens--
			n.at[i] = atRelease
		case atHold:
			n.at[i] = atRelease
		case atRelease:
			n.count++
			n.at[i] = atEnd
			if n.count <= 0 {
				n.at[i] = atSend
			}
		case atSend:
			n.tokens++
			n.at[i] = atEnd
		case atEnd:
			continue
		}
		yield(n, true)
	}
}

// check is what always holds.
func (m *creditModel) check(s creditState) error {
	var holders, waiters, owed int8
	for i := range m.actors {
		switch s.at[i] {
		case atHold, atRelease:
			holders++
		case atWait, atLeave, atSwap, atToken:
			waiters++
		case atSend:
			owed++
		}
	}
	switch {
	case holders > m.n:
		return fmt.Errorf("%d hold %d credits", holders, m.n)
	case s.count > m.n:
		return fmt.Errorf("%d credits of %d are free", s.count, m.n)
	case s.tokens > m.n:
		return fmt.Errorf("%d tokens in a channel for %d: Release blocks", s.tokens, m.n)
	case waiters != s.tokens+owed+max(0, -s.count):
		return fmt.Errorf("%d wait, but %d tokens, %d owed, count %d", waiters, s.tokens, owed, s.count)
	}
	return nil
}

func (m *creditModel) explore(s creditState) error {
	if m.seen[s] {
		return nil
	}
	m.seen[s] = true
	if err := m.check(s); err != nil {
		return fmt.Errorf("%w in %+v", err, s)
	}
	var err error
	stuck := true
	m.steps(s, func(next creditState, free bool) {
		stuck = stuck && !free
		if err == nil {
			err = m.explore(next)
		}
	})
	if err != nil || !stuck {
		return err
	}
	for i := range m.actors {
		if s.at[i] != atEnd {
			return fmt.Errorf("actor %d is stuck in %+v", i, s)
		}
	}
	if s.count != m.n || s.tokens != 0 {
		return fmt.Errorf("a credit was lost or made: %+v", s)
	}
	return nil
}

func (m *creditModel) run() error {
	m.seen = map[creditState]bool{}
	return m.explore(creditState{count: m.n, closer: m.closer})
}

// In every order of steps: never more holders than credits, Release never
// blocks, everybody ends though nobody has to give up, and all credits are back.
func TestCreditsEveryInterleaving(t *testing.T) {
	for n := int8(1); n <= 2; n++ {
		for actors := 2; actors <= maxActors; actors++ {
			for patient := 0; patient <= actors; patient++ {
				for _, closer := range []bool{false, true} {
					m := creditModel{n: n, actors: actors, patient: patient, closer: closer}
					if err := m.run(); err != nil {
						t.Errorf("%d credits, %d actors, %d patient, closer %v: %v", n, actors, patient, closer, err)
					}
				}
			}
		}
	}
}

// The model is able to fail: it finds the two mistakes one would make first.
func TestCreditsModelFindsMistakes(t *testing.T) {
	for name, m := range map[string]creditModel{
		"a leaver ignores a token meant for it":   {n: 1, actors: 3, leaveToken: true},
		"a leaver withdraws without looking":      {n: 1, actors: 3, leaveBlindly: true},
		"the same, and one that waits to the end": {n: 1, actors: 3, patient: 2, leaveBlindly: true},
	} {
		if err := m.run(); err == nil {
			t.Errorf("%s: not found", name)
		}
	}
}
