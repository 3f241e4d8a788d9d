package rxevm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// monitorTime bounds a command to QEMU's monitor, which answers at once.
const monitorTime = 10 * time.Second

// monitor is QEMU's control socket: JSON objects, a line each (docs/interop/qmp-spec.rst). The
// handshake is made on first use.
type monitor struct {
	mu    sync.Mutex // one command at a time; guards ready and in
	conn  net.Conn
	ready bool
	in    *json.Decoder
}

// ask makes QEMU execute a command.
func (q *monitor) ask(ctx context.Context, command string, arguments map[string]any) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	limit := time.Now().Add(monitorTime)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit = d
	}
	if err := q.conn.SetDeadline(limit); err != nil {
		return err
	}
	if !q.ready {
		q.in = json.NewDecoder(q.conn)
		var greeting map[string]any
		if err := q.in.Decode(&greeting); err != nil {
			return err
		}
		if err := q.exchange("qmp_capabilities", nil); err != nil {
			return err
		}
		q.ready = true
	}
	return q.exchange(command, arguments)
}

func (q *monitor) exchange(command string, arguments map[string]any) error {
	question := map[string]any{"execute": command}
	if arguments != nil {
		question["arguments"] = arguments
	}
	if err := json.NewEncoder(q.conn).Encode(question); err != nil {
		return err
	}
	for {
		var answer struct {
			Return json.RawMessage
			Error  *struct{ Class, Desc string }
			Event  string
		}
		switch err := q.in.Decode(&answer); {
		case err != nil:
			return err
		case answer.Error != nil:
			return fmt.Errorf("%s: %s", answer.Error.Class, answer.Error.Desc)
		case answer.Return != nil:
			return nil
		} // an event, not the answer
	}
}

// SetCarrier plugs the machine's end of the cable in or out: unlike with [Cable.Cut] the machine
// loses its carrier at once. It blocks until QEMU has done so, which may be before the machine's
// kernel has noticed.
func (m *Machine) SetCarrier(ctx context.Context, up bool) error {
	if m.address == "" {
		return errors.New("rxevm: the machine is on no cable")
	}
	if err := m.monitor.ask(ctx, "set_link", map[string]any{"name": nicName, "up": up}); err != nil {
		return fmt.Errorf("rxevm: set_link: %w", err)
	}
	return nil
}
