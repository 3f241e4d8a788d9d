package ring

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

type letter struct {
	hook      Hook[letter]
	from, seq int
}

func (l *letter) InboxHook() *Hook[letter] { return &l.hook }

func TestInboxAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in Inbox[letter, *letter]
		var model []*letter
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "what") > 0 {
				l := &letter{}
				if was := in.Push(l); was != (len(model) == 0) {
					t.Fatalf("Push on %d says wasEmpty=%v", len(model), was)
				}
				model = append(model, l)
			} else {
				k := 0
				for p := in.TakeAll(); p != nil; k++ {
					if k >= len(model) || p != model[k] {
						t.Fatalf("object %d of %d is not the one pushed then", k, len(model))
					}
					seen := p.InboxHook().Next()
					next := p.InboxHook().Unlink()
					if next != seen || p.InboxHook().Next() != nil {
						t.Fatal("Unlink must give Next and clear it")
					}
					p = next
				}
				if k != len(model) {
					t.Fatalf("took %d of %d", k, len(model))
				}
				model = nil
			}
			if in.Empty() != (len(model) == 0) {
				t.Fatalf("Empty is %v with %d queued", in.Empty(), len(model))
			}
		}
	})
}

// Every object arrives once, in its producer's order, and the consumer, who
// parks unless a push said wasEmpty, is always told.
func TestInboxConcurrently(t *testing.T) {
	const producers, each = 4, 20000
	var in Inbox[letter, *letter]
	bell := make(chan struct{}, 1)
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for seq := range each {
				if in.Push(&letter{from: p, seq: seq}) {
					bell <- struct{}{}
				}
			}
		})
	}
	var next [producers]int
	for total := 0; total < producers*each; {
		<-bell
		for p := in.TakeAll(); p != nil; total++ {
			if p.seq != next[p.from] {
				t.Fatalf("producer %d: got %d, want %d", p.from, p.seq, next[p.from])
			}
			next[p.from]++
			p = p.InboxHook().Unlink()
		}
	}
	wg.Wait()
	if !in.Empty() {
		t.Error("objects are left over")
	}
}
