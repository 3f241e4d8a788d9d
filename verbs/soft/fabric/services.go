package fabric

import (
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// Service is a listener of a port of the fabric.
type Service struct {
	// Addr is the address that it listens at, unspecified for all of the machine.
	Addr netip.Addr
	GID  verbs.GID // of the fabric's port
}

// serviceKey is a port space, as of the connection manager, and a port number in it.
type serviceKey struct{ space, port uint16 }

// Announce records a listener, so that others find it in this process: see Services. withdraw undoes
// it. Any goroutine; it does not block.
func (f *Fabric) Announce(space, port uint16, s Service) (withdraw func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := serviceKey{space, port}
	at := &s
	f.services[key] = append(f.services[key], at)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		all := slices.DeleteFunc(f.services[key], func(o *Service) bool { return o == at })
		if f.services[key] = all; len(all) == 0 {
			delete(f.services, key)
		}
	}
}

// Services returns the announced listeners of a port. Any goroutine; it does not block.
func (f *Fabric) Services(space, port uint16) (all []Service) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.services[serviceKey{space, port}] {
		all = append(all, *s)
	}
	return all
}
