//go:build linux && cgo && !portable

package ibv

import (
	"sync"
	"sync/atomic"
)

// lastID is the last number given to a C object. Incremented by registries; it publishes nothing.
// Numbers are not reused, so that an event of a destroyed object finds nothing.
var lastID atomic.Uint64

// registered is an object that events can name.
type registered interface{ base() *node }

// registry finds Go objects by the number in the context of the C object: C holds no Go pointer.
type registry struct {
	mu sync.Mutex
	m  map[uint64]registered
}

// add gives o its number. The caller makes the C object afterwards, so that its first event finds
// o.
func (r *registry) add(o registered) uint64 {
	id := lastID.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = map[uint64]registered{}
	}
	o.base().id = id
	r.m[id] = o
	return id
}

// forget reverses add when C made no object.
func (r *registry) forget(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, id)
}

// take finds the object of an event and counts the event; nil when the object
// is closed or closing: then the event must be acknowledged at once.
func (r *registry) take(id uint64) registered {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, ok := r.m[id]
	if !ok {
		return nil
	}
	o.base().unacked.Add(1)
	return o
}

// withdraw hides an object from events, unless some are not acknowledged. An object without a
// number can always be withdrawn.
func (r *registry) withdraw(n *node) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n.unacked.Load() > 0 {
		return false
	}
	if n.id != 0 {
		n.hidden = r.m[n.id]
		delete(r.m, n.id)
	}
	return true
}

// restore reverses withdraw when C refused to destroy the object.
func (r *registry) restore(n *node) {
	if n.id == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.m[n.id] = n.hidden
}
