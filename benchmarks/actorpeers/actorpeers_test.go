package main

import (
	"testing"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
)

// Rule: each library handles as many messages as it was told, by one sender and by several, and answers.
func TestEachLibraryHandlesEverything(t *testing.T) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			a := &adder{done: make(chan struct{}, 1)}
			lib, err := libraries[name](a)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range []load{{lib, a, 1, false}, {lib, a, crowd, false}, {lib, a, 1, true}} {
				if err := l.Round(3000, rounds.Values{}); err != nil {
					t.Errorf("%d senders, asking %t: %v", l.senders, l.asks, err)
				}
				if a.left != 0 {
					t.Errorf("%d senders, asking %t: %d messages were not handled", l.senders, l.asks, a.left)
				}
			}
			if err := lib.close(); err != nil {
				t.Error(err)
			}
		})
	}
}
