//go:build verbena_model

package ring

import "github.com/verbena-rdma/verbena/internal/model"

// The methods Digest add the shared state that a model test hashes.

// Digest adds the stack to d.
func (s *IndexStack) Digest(d *model.Digest) {
	d.Add(uint64(s.head.Load()))
	for i := range s.next {
		d.Add(uint64(s.next[i].load()))
	}
}

// Digest adds the state, listed or not, to d.
func (l *Listed) Digest(d *model.Digest) {
	if l.is.Load() {
		d.Add(1)
	} else {
		d.Add(2)
	}
}

// Digest adds to d the inbox and the links of all objects that it may hold.
func (q *Inbox[T, P]) Digest(d *model.Digest, all []*T) {
	id := func(p *T) (n uint64) {
		for i := range all {
			if all[i] == p {
				n = uint64(i) + 1
			}
		}
		return n // 0: nil
	}
	d.Add(id(q.head.Load()))
	for _, p := range all {
		d.Add(id(P(p).InboxHook().next))
	}
}

// Digest adds to d the queue, and of each filled place what of returns.
func (q *MPSC[T]) Digest(d *model.Digest, of func(*T) uint64) {
	d.Add(q.tail.Load())
	d.Add(q.head.Load())
	d.Add(q.next)
	for i := range q.places {
		p := &q.places[i]
		d.Add(p.seq.Load())
		d.Add(of(&p.v))
	}
}

// Tail returns the word from which a Push takes its place.
func (q *MPSC[T]) Tail() uint64 { return q.tail.Load() }
