package futures

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// opModel is the expected state of an operation, by the rules of the documentation.
type opModel struct {
	p       Promise[int]
	f       Future[int]
	v       int
	state   int // pending, settled, gone
	then    bool
	discard bool
	grouped bool
	done    <-chan struct{}
}

const (
	pending = iota
	settled
	gone
)

// refusal returns the misuse error of the handle, or nil if it may be used.
func (m *opModel) refusal() error {
	switch {
	case m.state == gone || m.then:
		return ErrConsumed
	case m.discard:
		return ErrDiscarded
	}
	return nil
}

// Any sequence of calls on operations of one pool behaves as the model, including calls on old
// handles.
func TestProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var disposed, called, wantDisposed, wantCalled []int
		pool := NewPool(Options[int]{Dispose: func(v int, _ error) { disposed = append(disposed, v) }})
		var ops []*opModel
		var g Group
		var inGroup []*opModel
		value := 0
		pick := func(t *rapid.T) *opModel {
			return rapid.SampledFrom(ops).Draw(t, "op")
		}
		start := func(*rapid.T) {
			m := &opModel{}
			m.p, m.f = pool.New(nil)
			ops = append(ops, m)
		}
		start(t)
		taken := func(t *rapid.T, m *opModel, v int, err error) {
			if v != m.v || err != nil {
				t.Fatalf("result %d, %v; want %d, nil", v, err, m.v)
			}
			m.state = gone
		}
		t.Repeat(map[string]func(*rapid.T){
			"new": start,
			"settle": func(t *rapid.T) {
				m := pick(t)
				value++
				first := m.p.Settle(value, nil)
				if first != (m.state == pending) {
					t.Fatalf("Settle = %v in state %d", first, m.state)
				}
				if !first {
					return
				}
				m.v, m.state = value, settled
				if m.then {
					wantCalled, m.state = append(wantCalled, value), gone
				} else if m.discard {
					wantDisposed, m.state = append(wantDisposed, value), gone
				}
			},
			"poll": func(t *rapid.T) {
				m := pick(t)
				v, err, ok := m.f.Poll()
				switch want := m.refusal(); {
				case want != nil:
					if err != want || !ok {
						t.Fatalf("Poll = %v, %v; want %v, true", err, ok, want)
					}
				case m.state == pending:
					if ok || err != nil {
						t.Fatalf("Poll of a pending future = %v, %v", err, ok)
					}
				default:
					taken(t, m, v, err)
				}
			},
			"await": func(t *rapid.T) {
				m := pick(t)
				v, err := m.f.Await(ended())
				want := m.refusal()
				if want == nil && m.state == pending {
					want = context.Canceled
				}
				if want == nil {
					taken(t, m, v, err)
				} else if err != want {
					t.Fatalf("Await = %v, want %v", err, want)
				}
			},
			"then": func(t *rapid.T) {
				m := pick(t)
				want := m.refusal()
				m.f.Then(func(v int, err error) {
					if err != want {
						t.Fatalf("Then got %v, want %v", err, want)
					}
					if err == nil {
						called = append(called, v)
					}
				})
				if want == nil {
					m.then = true
					if m.state == settled {
						wantCalled, m.state = append(wantCalled, m.v), gone
					}
				}
			},
			"discard": func(t *rapid.T) {
				m := pick(t)
				m.f.Discard()
				if m.refusal() == nil {
					m.discard = true
					if m.state == settled {
						wantDisposed, m.state = append(wantDisposed, m.v), gone
					}
				}
			},
			"done": func(t *rapid.T) {
				m := pick(t)
				if c := m.f.Done(); m.refusal() == nil && m.state == pending {
					m.done = c
				} else if c != (<-chan struct{})(closed) {
					t.Fatal("Done of a settled or dead handle must be closed")
				}
			},
			"add": func(t *rapid.T) {
				m := pick(t)
				want := m.refusal()
				if want == nil && m.grouped {
					want = ErrAwaited
				}
				if err := Add(&g, m.f); err != want {
					t.Fatalf("Add = %v, want %v", err, want)
				}
				if want == nil && m.state == pending {
					m.grouped = true
					inGroup = append(inGroup, m)
				}
			},
			"wait": func(t *rapid.T) {
				waits := slices.ContainsFunc(inGroup, func(m *opModel) bool { return m.state == pending })
				if err := g.Wait(ended()); waits != (err == context.Canceled) || !waits && err != nil {
					t.Fatalf("Wait = %v, unsettled: %v", err, waits)
				}
			},
			"": func(t *rapid.T) {
				if !slices.Equal(disposed, wantDisposed) || !slices.Equal(called, wantCalled) {
					t.Fatalf("disposed of %v, want %v; called with %v, want %v", disposed, wantDisposed, called, wantCalled)
				}
				for _, m := range ops {
					if m.p.Valid() != (m.state == pending) || m.f.Valid() != (m.refusal() == nil) ||
						m.f.Settled() != (m.state != pending || m.refusal() != nil) {
						t.Fatalf("Valid %v, %v, Settled %v of %+v", m.p.Valid(), m.f.Valid(), m.f.Settled(), m)
					}
					if m.done == nil {
						continue
					}
					select {
					case <-m.done:
						if m.state == pending {
							t.Fatal("Done closed before the settle")
						}
					default:
						if m.state != pending {
							t.Fatal("Done open after the settle")
						}
					}
				}
			},
		})
	})
}
