//go:build verbena_model

package model

import (
	"fmt"
	"strings"
	"testing"
)

// counting returns a world of two goroutines that each add one to a word.
func counting(add func(word *int)) func() World {
	return func() (w World) {
		word := 0
		w.Shared = func(d *Digest) { d.Add(uint64(word)) }
		w.End = func(blocked []string) error {
			if word != 2 || len(blocked) > 0 {
				return fmt.Errorf("%d of 2, blocked: %v", word, blocked)
			}
			return nil
		}
		for range 2 {
			w.Act("adder", func() { add(&word) })
		}
		return w
	}
}

// Rule: every order of steps is tried, a broken rule is reported with the steps to it, and an
// endless schedule breaks one.
func TestModel(t *testing.T) {
	Holds(t, "in one step", counting(func(word *int) {
		Yield("add")
		*word++
	}))
	Breaks(t, "load and store", `1 of 2, blocked: \[\]`, counting(func(word *int) {
		Yield("load")
		v := *word
		Yield("store")
		*word = v + 1
	}))
	Breaks(t, "nobody begins", `0 of 2, blocked: \[adder@wait adder@wait\]`, counting(func(word *int) {
		Block("wait", func() bool { return *word > 0 })
		*word++
	}))
	Breaks(t, "who looks again and again", "livelock", counting(func(word *int) {
		Yield("add")
		for *word++; *word < 2; {
			Fresh("look")
		}
	}))
	Breaks(t, "panic", "panic: twice", counting(func(word *int) {
		Yield("add")
		if *word++; *word == 2 {
			panic("twice")
		}
	}))
}

// Rule: where there are two ways to go on both are tried, whether the world hashes its shared data
// or the actors report the values they read.
func TestModelReceive(t *testing.T) {
	for _, said := range []bool{true, false} {
		var got [2]bool
		Holds(t, fmt.Sprintf("what is shared is said: %t", said), func() (w World) {
			c, done := make(chan uint8, 1), make(chan struct{})
			over := false
			if w.End = func([]string) error { return nil }; said {
				w.Shared = func(d *Digest) { d.Bits(len(c) > 0, over) }
			}
			w.Act("sender", func() { Yield("send"); c <- 1 })
			w.Act("closer", func() { Yield("close"); over = true; close(done) })
			w.Act("receiver", func() {
				_, ok := Receive(c, done)
				got[one(ok)] = true
			})
			return w
		})
		if got != [2]bool{true, true} {
			t.Errorf("received, or not: %v, want both", got)
		}
	}
}

// Rule: a world that does not hash all its shared data is detected, where that matters.
func TestModelSaysTooLittle(t *testing.T) {
	defer func() {
		if v := fmt.Sprint(recover()); !strings.Contains(v, "reached another state") {
			t.Errorf("panic %q, want that a replay reached another state", v)
		}
	}()
	_, err := Explore(func() (w World) {
		hidden, looked := false, false
		w.Shared = func(d *Digest) { d.Bits(looked) }
		w.End = func([]string) error { return nil }
		w.Act("writer", func() {
			Block("write", func() bool { return !looked })
			hidden = true
		})
		w.Act("reader", func() {
			Yield("look")
			looked = true
			Learn(uint64(one(hidden)))
			Yield("after")
		})
		return w
	})
	t.Errorf("not found: %v", err)
}
