package runtime

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// A name may have several addresses, and a listener at one of them: Dial tries one after the other, as package net does.

// leastPart is the least part of the time that an address of several gets, as in package net (saneMinimum).
const leastPart = 2 * time.Second

// partOf returns the part of the time left for the first of several addresses.
//
// Implements: partialDeadline of package net.
func partOf(left time.Duration, addrs int) time.Duration {
	return max(left/time.Duration(addrs), min(left, leastPart))
}

// elsewhere goes on with the next address of the peer, if there is one, because of err, the error of the address
// that the attempt is at. A connection that has a queue pair passes the attempt to a new one.
func (c *Conn) elsewhere(err error) {
	a := c.attempt
	if c.state != connConnecting || a == nil || !ofAddress(err) {
		c.giveUp(err)
		return
	}
	if a.failed == nil {
		a.failed = err
	}
	switch {
	case !c.othersLeft():
		c.giveUp(a.failed)
	case !c.admitted:
		a.at++
		c.sh.closeID(c.id, nil)
		c.limitTime()
		c.lookUp()
	case c.passOn(func(*Conn) { a.at++ }):
		c.giveUp(err) // this connection; the attempt goes on
	default:
		c.giveUp(a.failed)
	}
}

// othersLeft reports whether the peer has another address that the attempt can go on with. A queue pair that the program
// has seen (PrepareDial) stays at its address.
func (c *Conn) othersLeft() bool {
	a := c.attempt
	return a != nil && a.at+1 < len(a.ways) && !(c.hold && c.admitted)
}

// ofAddress reports whether err concerns one address of a peer, and another may be reached: the device does not reach it,
// there is no answer, or no listener.
func ofAddress(err error) bool {
	if rej, ok := errors.AsType[*RejectError](err); ok {
		return rej.Reason == rejInvalidService
	}
	for _, e := range []error{ErrUnreachable, ErrConnectTimeout, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// limitTime starts the timer for the address that the attempt is at.
func (c *Conn) limitTime() {
	bound, what := c.rt.cfg.ConnectTimeout, "Config.ConnectTimeout"
	limit := bound
	if a := c.attempt; a != nil {
		limit = max(a.end.Sub(c.rt.cfg.now()), 0)
		if c.othersLeft() {
			limit, what = partOf(limit, len(a.ways)-a.at), "a part of Config.ConnectTimeout"
			bound = limit
		}
	}
	c.sh.r.StopTimer(c.timer)
	c.timer = c.sh.r.After(limit, func() {
		c.elsewhere(fmt.Errorf("%w: %v, longer than %v (%s)", ErrConnectTimeout, c.remote, bound, what))
	})
}
