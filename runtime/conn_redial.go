package runtime

import (
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/futures"
)

// redials is how many times Dial asks again after the peer's connection manager has rejected a request
// because of a stale connection. Each of them needs a queue pair number that the peer still takes for a
// connection of an earlier process, which is rare.
const redials = 3

// dialAttempt is one call of Dial. It has one connection after another:
//
//	conn ── REJECTED, stale connection ──> stale ── the attempt ends ──> closed
//	  │     a new conn is made meanwhile                                   ^
//	  └──── no listener or no answer, and the peer has another address ────┘
//	        a new conn is made meanwhile
//
// A stale connection is one that has ended here without notifying the peer, for example because the
// process was killed, and whose queue pair number is in use again. The peer rejects the request and ends its
// connection (Linux cm.c, cm_match_req), but remembers the number for a time (cm_enter_timewait). So the queue
// pairs of all rejected requests are kept until the attempt ends: each new one has another number.
type dialAttempt struct {
	ways []addrResolver // to the addresses of the peer, in the order in which they are tried
	opts Options        // as inherited

	mu      sync.Mutex // guards conn and aborted
	conn    *Conn
	aborted bool

	// The holder of the turn of the reactor that has the connection uses these.
	end    time.Time // Config.ConnectTimeout after the beginning
	at     int       // index in ways
	failed error     // of the first address; nil: it has not failed
	again  int       // how many times the request was repeated
	stale  []*Conn   // the connections before conn whose queue pairs are kept
}

// abort ends the attempt. Any goroutine may call it.
func (a *dialAttempt) abort() {
	a.mu.Lock()
	a.aborted = true
	c := a.conn
	a.mu.Unlock()
	c.Abort()
}

// use makes c the connection of the attempt. It returns false if the attempt was aborted.
func (a *dialAttempt) use(c *Conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn = c
	return !a.aborted
}

// ended gives up the stale connections. It is called when the connection is established, or has failed.
func (a *dialAttempt) ended() {
	if a == nil {
		return
	}
	for _, old := range a.stale {
		old.sh.r.Defer(func() { old.giveUp(ErrConnClosed) })
	}
	a.stale = nil
}

// redial passes the attempt to a new connection with another queue pair, to the same address. It returns false if there is no further
// try. Holder only.
func (c *Conn) redial() bool {
	a := c.attempt
	if a == nil || a.again == redials {
		return false
	}
	return c.passOn(func(old *Conn) { a.again, a.stale = a.again+1, append(a.stale, old) })
}

// passOn passes the attempt to a new connection, for which step prepares the attempt. It returns false if that is not possible: the
// program has seen the queue pair and perhaps posted receives (PrepareDial), or the runtime is being closed. Making a connection may map
// memory, so it is done without the turn. Holder only.
func (c *Conn) passOn(step func(old *Conn)) bool {
	a := c.attempt
	if c.state != connConnecting || a == nil || c.hold || c.rt.enter() != nil {
		return false
	}
	promise := c.promise
	c.promise, c.attempt = futures.Promise[*Conn]{}, nil // from now on settle has no promise to settle
	prepare := func() {
		n, err := c.rt.newConn(nil, a.opts)
		if err != nil {
			c.sh.r.Defer(func() {
				promise.Settle(nil, err)
				c.giveUp(err)
				a.ended()
			})
		} else {
			n.attempt, n.promise = a, promise
			step(c)
			wanted := a.use(n)
			n.sh.r.Defer(func() { n.dial() })
			if !wanted {
				n.Abort()
			}
		}
		c.rt.leave() // after Defer, as in request.begin
	}
	if c.rt.cfg.stepped {
		prepare()
	} else {
		go prepare()
	}
	return true
}
