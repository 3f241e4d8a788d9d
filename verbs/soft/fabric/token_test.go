package fabric

import "testing"

// The model: actors that follow the rules of drive around one endpoint, one atomic step at a time.
// The steps call the real token, whose operations each take effect at one instant, so every
// interleaving of real goroutines is one of these.
//
//	kicker:   publish work, take; as the runner: run, release, and if marked
//	          queue: take again, and so on; one variant hands the queued port to
//	          the pacemaker instead (its budget is used up)
//	control:  tryTake, and again; then await, until it is woken or handed the token;
//	          then run and release like a kicker
//	pacer:    takes deferred ports
type actorState struct {
	pc    int  // see step
	kicks int  // left to do
	lost  bool // a control call has waited
	due   bool // it waits to be handed the token
	defers,
	control,
	pacer bool
}

const (
	pcStart = iota
	pcTake
	pcTurn
	pcRelease
	pcRetake
	pcAwait
	pcAsleep
	pcDone
)

type model struct {
	word     uint32 // of the token
	work     int    // published and not consumed
	turning  int    // actors inside a run
	deferred bool
	freed    int // wake-ups that were not taken
	actors   [3]actorState
}

// step does the next step of actor i; false if it has none now.
func (m *model) step(t *testing.T, i int) bool {
	var tok token
	tok.word.Store(m.word)
	defer func() { m.word = tok.word.Load() }()
	a := &m.actors[i]
	// beRunner makes an actor that got the token run.
	beRunner := func() {
		m.turning++
		if m.turning > 1 {
			t.Fatalf("two actors run the endpoint: %+v", *m)
		}
		a.pc = pcTurn
	}
	switch a.pc {
	case pcStart:
		switch {
		case a.pacer:
			if !m.deferred {
				return false
			}
			m.deferred = false // cleared before the token is taken
		case a.kicks == 0:
			a.pc = pcDone
			return true
		default:
			a.kicks--
			m.work++
		}
		a.pc = pcTake
	case pcTake:
		if a.control {
			if tok.tryTake() {
				beRunner()
			} else {
				a.pc = pcAwait
			}
			return true
		}
		if tok.take() {
			beRunner()
		} else {
			a.pc = pcStart
		}
	case pcTurn:
		m.work = 0
		a.pc = pcRelease
	case pcRelease:
		m.turning--
		a.pc, a.lost, a.due = pcStart, false, false
		marked, wake := tok.release()
		if wake {
			if m.freed++; m.freed > 1 {
				t.Fatalf("one who waits is woken twice: %+v", *m)
			}
		}
		if marked {
			a.pc = pcRetake
		}
	case pcAwait:
		a.pc = pcTake
		if tok.await(a.lost) {
			a.pc, a.due = pcAsleep, a.lost
		}
		a.lost = true
	case pcAsleep:
		if m.freed == 0 {
			return false
		}
		m.freed--
		a.pc = pcTake
		if a.due {
			beRunner()
		}
	case pcRetake:
		if a.defers {
			m.deferred = true
			a.pc = pcStart
			return true
		}
		a.pc = pcStart
		if tok.take() {
			beRunner()
		}
	case pcDone:
		return false
	}
	return true
}

// explore visits every reachable state, and checks that nothing is left undone in those without a
// next step.
func explore(t *testing.T, start model) (states int) {
	seen := map[model]bool{}
	var visit func(m model)
	visit = func(m model) {
		if seen[m] {
			return
		}
		seen[m] = true
		stuck := true
		for i := range m.actors {
			n := m
			if n.step(t, i) {
				stuck = false
				visit(n)
			}
		}
		if stuck && (m.work != 0 || m.word != idle || m.deferred || m.freed != 0) {
			t.Fatalf("at rest with something undone: a kick was lost: %+v", m)
		}
		for _, a := range m.actors {
			if stuck && a.pc == pcAsleep {
				t.Fatalf("at rest with one who waits: a wake-up was lost: %+v", m)
			}
		}
	}
	visit(start)
	return len(seen)
}

func TestTokenInterleavings(t *testing.T) {
	kicker := actorState{kicks: 3}
	budgeted := actorState{kicks: 3, defers: true}
	control := actorState{kicks: 2, control: true}
	pacer := actorState{pacer: true}
	for name, actors := range map[string][3]actorState{
		"three kickers":                       {kicker, kicker, kicker},
		"kickers and a control call":          {kicker, kicker, control},
		"kicker out of budget and pacemaker":  {kicker, budgeted, pacer},
		"budgeted, control and the pacemaker": {budgeted, control, pacer},
	} {
		// The pacemaker itself never defers in the model, or else it could go on forever; a scene
		// with a kicker that defers always has one.
		if n := explore(t, model{actors: actors}); n < 100 {
			t.Errorf("%s: only %d states: the model does not run", name, n)
		}
	}
}
