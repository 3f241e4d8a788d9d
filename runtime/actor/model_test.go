//go:build verbena_model

package actor

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// model is a world with one actor: producers that push and wake, and executors that
// run it. Its goroutines take turns, at every step of the word's real code.
type model struct {
	w       word
	queued  int // published, not handled
	enq     int // enqueueings that no executor has taken
	active  int // activations under way
	budget  int // messages per activation
	pushing int // producers that have not finished

	rest func() string // what else the future depends on
	left func() bool   // something waits; with nobody who can go on it is lost
	soft bool          // goroutines that are given up run to their end
	over bool          // they do

	threads []*mthread
	cur     *mthread
	back    chan struct{} // the running thread is at a step, or has ended
	broken  string
}

// mthread is a goroutine of the model.
type mthread struct {
	resume chan bool // false: the run is given up
	at     string
	extra  int // what else its future depends on
	ended  bool
	ready  func() bool
}

func (m *model) step(at string) {
	if m.over {
		return
	}
	t := m.cur
	t.at = at
	m.back <- struct{}{}
	if !<-t.resume {
		runtime.Goexit()
	}
}

func (m *model) start(name string, body func(t *mthread)) {
	t := &mthread{resume: make(chan bool), at: name}
	m.threads = append(m.threads, t)
	go func() {
		defer func() { t.ended = true; m.back <- struct{}{} }()
		if !<-t.resume {
			return
		}
		body(t)
	}()
}

func (m *model) producer(pushes int) {
	m.pushing++
	m.start("producer", func(t *mthread) {
		for i := range pushes {
			t.extra = pushes - i
			m.step("push")
			m.queued++
			if m.w.wake() {
				m.step("enqueue")
				m.enq++
			}
		}
		m.pushing--
	})
}

func (m *model) executor() {
	m.start("executor", func(t *mthread) {
		for {
			t.ready = func() bool { return m.enq > 0 }
			m.step("wait")
			t.ready = nil
			m.enq--
			if m.active++; m.active > 1 {
				m.broken = "two activations at once"
			}
			m.w.run()
			left := m.budget
			for {
				t.extra = left
				m.step("look")
				if m.queued > 0 && left > 0 {
					m.queued--
					left--
					continue
				}
				if left == 0 {
					m.active--
					m.w.again()
					m.step("requeue")
					m.enq++
					break
				}
				m.active--
				if m.w.rest() {
					break
				}
				m.active++
			}
		}
	})
}

// state is all that the future depends on.
func (m *model) state() string {
	s := fmt.Sprint(m.w.s.Load(), m.queued, m.enq, m.active, m.pushing)
	if m.rest != nil {
		s += m.rest()
	}
	for _, t := range m.threads {
		s += fmt.Sprint("|", t.at, t.extra, t.ended)
	}
	return s
}

// enabled are the threads that can go on.
func (m *model) enabled() (all []int) {
	for i, t := range m.threads {
		if !t.ended && (t.ready == nil || t.ready()) {
			all = append(all, i)
		}
	}
	return all
}

// let runs thread i to its next step.
func (m *model) let(i int) {
	m.cur = m.threads[i]
	m.cur.resume <- true
	<-m.back
}

// giveUp ends the goroutines of a run.
func (m *model) giveUp() {
	for _, t := range m.threads {
		if !t.ended {
			m.cur, m.over = t, m.soft
			t.resume <- m.soft
			<-m.back
		}
	}
}

// alone waits until the workers of other tests have left: what hands a model's steps
// out is one for the whole process. A pool's close does not wait for its workers.
func alone() {
	stacks := make([]byte, 1<<20)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if n := runtime.Stack(stacks, true); !bytes.Contains(stacks[:n], []byte("actor.(*workers).work(")) {
			return
		}
	}
	panic("workers of another test do not leave")
}

// explore runs every interleaving of what build makes, by replaying prefixes, and
// returns how many states there are and the first rule that breaks.
func explore(build func(m *model)) (states int, broken string, trace []string) {
	alone()
	seen := map[string]bool{}
	var search func(prefix []int) bool
	search = func(prefix []int) bool {
		m := &model{back: make(chan struct{}), budget: 2}
		switchTo = m.step
		build(m)
		trace = trace[:0]
		for _, i := range prefix {
			trace = append(trace, fmt.Sprint(i, " ", m.threads[i].at))
			m.let(i)
		}
		s, can := m.state(), m.enabled()
		if m.broken == "" && len(can) == 0 && (m.queued > 0 || m.w.s.Load() != idle || m.left != nil && m.left()) {
			m.broken = "lost wake-up: " + s
		}
		broken = m.broken
		m.giveUp()
		if broken != "" {
			return true
		}
		if seen[s] {
			return false
		}
		seen[s] = true
		for _, i := range can {
			if search(append(prefix[:len(prefix):len(prefix)], i)) {
				return true
			}
		}
		return false
	}
	search(nil)
	switchTo = nil
	return len(seen), broken, trace
}

var modelScenes = map[string]func(m *model){
	"one producer":                         func(m *model) { m.producer(2); m.executor() },
	"one producer, two executors":          func(m *model) { m.producer(3); m.executor(); m.executor() },
	"two producers, two executors":         func(m *model) { m.producer(2); m.producer(2); m.executor(); m.executor() },
	"three producers, two executors":       func(m *model) { m.producer(1); m.producer(1); m.producer(2); m.executor(); m.executor() },
	"two producers, one message at a time": func(m *model) { m.budget = 1; m.producer(2); m.producer(1); m.executor(); m.executor() },
}

// Rule: in every interleaving there is one activation at a time, and nobody rests
// while something is there.
func TestEveryInterleaving(t *testing.T) {
	for name, build := range modelScenes {
		states, broken, trace := explore(build)
		if broken != "" {
			t.Errorf("%s: %s after %q", name, broken, trace)
		}
		t.Logf("%s: %d states", name, states)
	}
}

// Rule: each defence is needed: without it some interleaving loses a wake-up.
func TestEveryDefenceIsNeeded(t *testing.T) {
	defer func() { mutant = mutantNone }()
	for name, m := range map[string]int{"a mark for the runner": mutantNoRescan, "look at the mark before resting": mutantBlindRest} {
		mutant = m
		_, broken, trace := explore(modelScenes["one producer"])
		if broken == "" {
			t.Errorf("%s: no interleaving breaks a rule without it", name)
		}
		t.Logf("%s: %s after %d steps", name, broken, len(trace))
	}
}
