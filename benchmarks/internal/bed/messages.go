package bed

import (
	"context"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Exchange sends a message by op on a managed connection, waits for the answer, and gives it back. It blocks until
// then. One goroutine of an end may call it.
func Exchange(ctx context.Context, c *verbena.Conn, op *verbena.Op) error {
	f, err := c.Batch().Start(ctx, op) // posted by the wait for the answer
	if err != nil {
		return err
	}
	m, err := c.RecvWait(ctx)
	if err != nil {
		return err
	}
	if err := m.Release(); err != nil {
		return err
	}
	_, err = f.Await(ctx)
	return err
}

// Answer waits for a message on a managed connection, and starts an answer of the same text, which the next wait
// posts. It blocks until then. One goroutine of an end may call it.
func Answer(ctx context.Context, c *verbena.Conn) error {
	m, err := c.RecvWait(ctx)
	if err != nil {
		return err
	}
	op := verbena.SendBytesOp(m.Data)
	f, err := c.Batch().Start(ctx, &op)
	if err != nil {
		return err
	}
	f.Discard()
	return m.Release()
}
