package rxevm

import (
	"io"

	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// write writes the output until the command has ended and everything is written. A writer that
// fails gets no more; the command continues.
func (p *Process) write() {
	to := map[wire.Kind]io.Writer{wire.Stdout: p.cmd.Stdout, wire.Stderr: p.cmd.Stderr}
	for {
		over := false
		select {
		case <-p.exited:
			over = true // output from before the exit is queued
		default:
		}
		p.mu.Lock()
		queue := p.queue
		p.queue = nil
		p.mu.Unlock()
		n := 0
		for _, f := range queue {
			if w := to[f.Kind]; w != nil {
				if _, err := w.Write(f.Payload); err != nil {
					to[f.Kind] = nil
				}
			}
			n += len(f.Payload)
		}
		p.mu.Lock()
		p.queued -= n
		p.mu.Unlock()
		if over && len(queue) == 0 {
			return
		}
		if !over {
			select {
			case <-p.more:
			case <-p.exited:
			}
		}
	}
}
