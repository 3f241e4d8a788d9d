package plog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Serve lends a lane of the log to the writer at the other end of a managed connection, and answers it,
// until the connection or ctx ends. The connection's runtime must be that of the log's region. Serve
// takes all messages of the connection, which stays the caller's. Before Serve returns, it ends the
// writer's access, and the lane is free for the next writer. The last answer may still be on its way then:
// Conn.Close delivers it, Conn.Abort does not.
//
// The writer asks for a lane by its number. If lanes are given, it gets one of these only: a program that
// knows the peer gives it the lane that is the peer's. Without lanes it gets any that is free.
//
// While Serve runs, the writer writes its lane without it: only a writer that joins, or has used its
// space up, sends a message. The join waits for the disk, also beyond the end of ctx.
//
// Errors: the cause of the connection; the context's error; [ErrMessage] for a peer that does not keep
// to the protocol; [ErrFailed]; errors of the device; ErrNilContext. If the writer's access cannot be
// ended, its lane stays taken, and Serve returns why.
func (l *Log) Serve(ctx context.Context, conn *verbena.Conn, lanes ...int) error {
	if ctx == nil {
		return verbena.ErrNilContext
	}
	s := session{l: l, conn: conn, may: lanes, lane: -1}
	err := s.run(ctx)
	if s.lane < 0 {
		return err
	}
	// The context may have ended already; Revoke waits for the device alone.
	if e := s.access.end(context.WithoutCancel(ctx)); e != nil {
		return errors.Join(err, fmt.Errorf("plog: lane %d stays taken: %w", s.lane, e))
	}
	l.release(s.lane)
	return err
}

// session is a connection that Serve serves.
type session struct {
	l      *Log
	conn   *verbena.Conn
	may    []int  // the lanes that the writer may join; empty for all
	lane   int    // -1 until the writer has joined
	access access // of the writer, which has joined
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
	kind, number, err := parseAsk(b)
	switch {
	case err != nil:
	case kind == msgSpace && s.lane >= 0:
		if answer, err = s.space(ctx, number); err == nil {
			return answer, nil
		}
	case kind == msgJoin && s.lane < 0:
		answer, err = s.join(ctx, int(min(number, MaxLanes)))
		switch {
		case err == nil:
			return answer, nil
		case s.lane < 0 && (errors.Is(err, ErrLane) || errors.Is(err, ErrLaneHeld) || errors.Is(err, ErrFull)):
			return refusal(err), nil // the writer may try another lane, or again
		}
	default:
		err = fmt.Errorf("%w: it joins twice, or asks for space of no lane", ErrMessage)
	}
	return refusal(err), err
}

// join claims a lane and opens what is free of its ring, and nothing else, to the writer.
func (s *session) join(ctx context.Context, lane int) ([]byte, error) {
	if len(s.may) > 0 && !slices.Contains(s.may, lane) {
		return nil, fmt.Errorf("%w: %d is not lent to this writer", ErrLane, lane)
	}
	g := grant{lane: lane, log: s.l.layout}
	var err error
	if g.state, err = s.l.claim(lane, draw()); err != nil {
		return nil, err
	}
	s.lane = lane
	s.access = access{log: s.l.layout, claimed: g.state.claimed, bind: s.bind}
	if err := s.access.first(ctx, g.state.head); err != nil {
		return nil, err
	}
	if g.windows, err = s.access.used.remotes(); err != nil {
		return nil, err
	}
	return g.append(nil)
}

// space answers a question for space.
func (s *session) space(ctx context.Context, number uint32) ([]byte, error) {
	head := s.l.headOf(s.lane)
	o, err := s.access.space(ctx, number, head)
	if err != nil {
		return nil, err
	}
	answer := space{number: o.number, head: head}
	if o.number != number {
		if answer.windows, err = o.remotes(); err != nil {
			return nil, err
		}
	}
	return answer.append(nil)
}

// bind opens a part of the lane's ring to the writer.
func (s *session) bind(ctx context.Context, part span) (window, error) {
	w, err := s.conn.NewWindow()
	if err != nil {
		return nil, err
	}
	_, bound, err := w.Bind(ctx, s.l.region, s.l.ring(s.lane)+part.off, part.n, verbs.AccessRemoteWrite|verbs.AccessFlushPersistent)
	if err != nil {
		return w, err
	}
	if _, err := bound.Await(ctx); err != nil {
		bound.Discard()
		return w, err
	}
	return w, nil
}
