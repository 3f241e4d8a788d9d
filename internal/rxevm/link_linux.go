package rxevm

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// logTail is how many lines of the kernel's log an error shows.
const logTail = 40

// tail returns the last n lines of a text.
func tail(text string, n int) string {
	lines := strings.SplitAfter(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// send writes a frame. The agent reads at once: if it does not in time, part of a frame may be
// written, and the machine is lost.
func (m *Machine) send(f wire.Frame) error {
	m.out.Lock()
	err := m.link.SetWriteDeadline(time.Now().Add(silence))
	if err == nil {
		err = wire.Write(m.link, f)
	}
	m.out.Unlock()
	if err != nil && !errors.Is(err, wire.ErrFrame) { // a frame that is too long is not written at all
		m.fail(fmt.Errorf("%w: the link: %w", ErrLost, err))
	}
	return err
}

// receive distributes the agent's frames, until the link ends.
func (m *Machine) receive(in *bufio.Reader) {
	for {
		f, err := wire.Read(in)
		if err != nil {
			m.fail(fmt.Errorf("%w: the link: %w", ErrLost, err))
			return
		}
		m.heard.Store(time.Now())
		m.mu.Lock()
		p := m.jobs[f.Job]
		m.mu.Unlock()
		if p != nil {
			p.take(f)
		}
	}
}

// watch pings the agent, and declares the machine lost when it is silent or dead.
func (m *Machine) watch() {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-m.qemu.dead:
			m.fail(fmt.Errorf("%w: QEMU ended: %v: %s", ErrLost, m.qemu.how(), m.qemu.said()))
			return
		case <-tick.C:
		}
		if quiet := time.Since(m.heard.Load()); quiet > silence {
			m.fail(fmt.Errorf("%w: nothing heard for %v", ErrLost, quiet.Round(time.Second)))
			m.kill()
			return
		}
		if err := m.send(wire.Frame{Kind: wire.Ping}); err != nil {
			m.kill()
			return
		}
	}
}

// fail ends all commands with err; the machine keeps the first reason.
func (m *Machine) fail(err error) {
	m.mu.Lock()
	if m.fatal == nil {
		m.fatal = err
	}
	err = m.fatal
	jobs := m.jobs
	m.jobs = map[uint32]*Process{}
	m.mu.Unlock()
	for _, p := range jobs {
		p.finish(err)
	}
}
