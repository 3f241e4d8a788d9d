package rpma

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// descriptorOf returns the descriptor of an event.
func descriptorOf(op string, e *sys.Event) (int, error) {
	if fd := e.FD(); fd >= 0 {
		return fd, nil
	}
	return -1, fail(op, ErrNotSupported, fmt.Errorf("%w: no descriptor", verbs.ErrNotSupported))
}
