package plog

import (
	"context"
	"errors"
	"fmt"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Serve lends a lane of the log to the writer at the other end of a managed connection, and answers it,
// until the connection or ctx ends. The connection's runtime must be that of the log's region. Serve
// takes all messages of the connection, which stays the caller's. Before Serve returns, it ends the
// writer's access, and the lane is free for the next writer. The last answer may still be on its way then:
// Conn.Close delivers it, Conn.Abort does not.
//
// While Serve runs, the writer writes its lane without it: only a writer that joins, or has used its
// space up, sends a message.
//
// Errors: the cause of the connection; the context's error; [ErrMessage] for a peer that does not keep
// to the protocol; [ErrFailed]; errors of the device. If the writer's access cannot be ended, its lane
// stays taken, and Serve returns why.
func (l *Log) Serve(ctx context.Context, conn *verbena.Conn) error {
	s := session{l: l, conn: conn, lane: -1}
	err := s.run(ctx)
	if s.window != nil {
		// The context may have ended already; Revoke waits for the device alone.
		if e := s.window.Revoke(context.WithoutCancel(ctx)); e != nil {
			return errors.Join(err, fmt.Errorf("plog: lane %d stays taken: %w", s.lane, e))
		}
	}
	if s.lane >= 0 {
		l.release(s.lane)
	}
	return err
}

// session is a connection that Serve serves.
type session struct {
	l      *Log
	conn   *verbena.Conn
	lane   int             // -1 until the writer has joined
	window *verbena.Window // the writer's access to the lane's ring; nil until then
}

func (s *session) run(ctx context.Context) error {
	for {
		msg, err := s.conn.RecvWait(ctx)
		if err != nil {
			return err
		}
		answer, fatal := s.answer(ctx, msg.Data)
		if err := msg.Reply(ctx, new(verbena.SendBytesOp(answer))); err != nil {
			msg.Release()
			return errors.Join(fatal, err)
		}
		if fatal != nil {
			return fatal
		}
	}
}

// answer returns the answer to a message, and an error if the connection shall not be served further.
func (s *session) answer(ctx context.Context, b []byte) (answer []byte, fatal error) {
	kind, lane, err := parseAsk(b)
	switch {
	case err != nil:
		return refusal(err), err
	case kind == msgSpace && s.lane >= 0:
		return appendSpace(s.l.headOf(s.lane)), nil
	case kind == msgJoin && s.lane < 0:
		answer, err := s.join(ctx, int(min(lane, MaxLanes)))
		switch {
		case err == nil:
			return answer, nil
		case errors.Is(err, ErrLane), errors.Is(err, ErrLaneHeld), errors.Is(err, ErrFull):
			return refusal(err), nil // the writer may try another lane, or again
		}
		return refusal(err), err
	}
	err = fmt.Errorf("%w: it joins twice, or asks for space of no lane", ErrMessage)
	return refusal(err), err
}

// join claims a lane and opens its ring, and nothing else, to the writer.
func (s *session) join(ctx context.Context, lane int) ([]byte, error) {
	g := grant{lane: lane, log: s.l.layout}
	var err error
	if g.state, err = s.l.claim(lane); err != nil {
		return nil, err
	}
	s.lane = lane
	if s.window, err = s.conn.NewWindow(); err != nil {
		return nil, err
	}
	at, bound, err := s.window.Bind(ctx, s.l.region, s.l.ring(lane), s.l.laneSize, verbs.AccessRemoteWrite|verbs.AccessFlushPersistent)
	if err != nil {
		return nil, err
	}
	if _, err := bound.Await(ctx); err != nil {
		bound.Discard()
		return nil, err
	}
	g.at = at
	return g.append(nil)
}
