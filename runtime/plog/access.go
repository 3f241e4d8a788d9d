package plog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// window is a memory window of a writer's connection. Tests simulate one.
type window interface {
	Remote() (verbena.Remote, error)
	Revoke(ctx context.Context) error
}

// access is what the server lets the writer of a lane reach: everything but the records of earlier
// writers. That grows when the server trims, and is bound anew when the writer asks for space.
//
//	         bind                     the writer asks by the offered ones: revoke the used ones
//	used ──────────────> used, offered ─────────────────────────────────────────────────────────> used
//	  ^                        │
//	  └────────────────────────┘
//	   the writer asks by the used ones, and more is free since: revoke the offered ones, bind others
//
// A writer that asks has no request left by older windows: it has sent the question behind them, and
// the device executes them in order. But the answer may not have reached the writer, whose context has
// ended. So the windows that it asks by live until it asks by the next ones.
//
// The windows of one writer only grow. So older ones open nothing that the latest do not.
type access struct {
	log     layout
	claimed uint64 // where the writer's records begin
	// bind opens a part of the ring. It may return a window together with an error.
	bind          func(ctx context.Context, s span) (window, error)
	used, offered *opening // offered is nil without one
}

// opening is what the writer was told at once: windows on the parts that are open while the lane keeps the
// records from head on.
type opening struct {
	number  uint32
	parts   []span
	windows []window
}

// first opens what is free when the writer joins.
func (a *access) first(ctx context.Context, head uint64) error {
	a.used = &opening{}
	return a.fill(ctx, a.used, a.log.open(a.claimed, head))
}

// space returns what is open while the lane keeps the records from head on, to a writer that asks by the
// windows with a number.
func (a *access) space(ctx context.Context, number uint32, head uint64) (*opening, error) {
	switch {
	case a.offered != nil && number == a.offered.number:
		if err := a.used.revoke(ctx); err != nil {
			return nil, err
		}
		a.used, a.offered = a.offered, nil
	case number != a.used.number:
		return nil, fmt.Errorf("%w: it asks by the windows %d, and has %d", ErrMessage, number, a.used.number)
	}
	latest := a.used
	if a.offered != nil {
		latest = a.offered
	}
	parts := a.log.open(a.claimed, head)
	if slices.Equal(parts, latest.parts) {
		return latest, nil
	}
	next := &opening{number: latest.number + 1}
	if a.offered != nil {
		if err := a.offered.revoke(ctx); err != nil {
			return nil, err
		}
	}
	a.offered = next
	return next, a.fill(ctx, next, parts)
}

// fill binds windows on the parts for o. If that fails, those that were bound are revoked with the rest
// (end).
func (a *access) fill(ctx context.Context, o *opening, parts []span) error {
	o.parts = parts
	for _, s := range parts {
		w, err := a.bind(ctx, s)
		if w != nil {
			o.windows = append(o.windows, w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// end ends the access. When it returns nil, no access is in progress.
func (a *access) end(ctx context.Context) error {
	return errors.Join(a.used.revoke(ctx), a.offered.revoke(ctx))
}

// revoke revokes the windows of o, which may be nil.
func (o *opening) revoke(ctx context.Context) error {
	if o == nil {
		return nil
	}
	var errs []error
	for _, w := range o.windows {
		errs = append(errs, w.Revoke(ctx))
	}
	return errors.Join(errs...)
}

// remotes returns the descriptors of the windows for the writer.
func (o *opening) remotes() (at []verbena.Remote, err error) {
	for _, w := range o.windows {
		r, err := w.Remote()
		if err != nil {
			return nil, err
		}
		at = append(at, r)
	}
	return at, nil
}
