package runtime

import (
	"fmt"
	"slices"
	"time"
)

// A program may accept in turn: it calls PrepareAccept again when Pending.Connect has returned. Then a peer that does
// not answer the acceptance delays the others, and any number of such peers may come one after the other: each for
// 1 to 2 s with the software RNIC, and for Config.ConnectTimeout with the kernel's connection manager. Unlike the
// handshakes that the listener begins itself, the next cannot begin beside a silent one: it needs the program, which
// posts receives first.
//
//	PrepareAccept ──> Pending.Connect ── the peer answers ──────────────────> connected
//	                   │           └──── turnPatience.left, and a request waits
//	                   v                 that no call of the program takes ──> given up
//	             Listener.connecting
//
// A peer whose answer comes too late learns that its connection has ended, and may ask again.

// turnPatience decides how long such a program waits for a silent peer. While no other request waits, there is no limit.
// Only the holder of the listener's turn uses it.
type turnPatience struct {
	spent time.Duration // on silent peers, beyond slowAfter for each; a tenth of the time that passes is taken off
	at    time.Time     // when spent was right
}

// left returns how long the next silent peer may delay others: handshakePatience, unless the last ones have cost more than
// that; then slowAfter. So n silent peers delay a program by 2 handshakePatience and n slowAfter, and a tenth of the time.
func (p *turnPatience) left(now time.Time) time.Duration {
	p.spent, p.at = max(0, p.spent-now.Sub(p.at)/10), now
	if p.spent > handshakePatience {
		return slowAfter
	}
	return handshakePatience
}

// gaveUp charges for a peer that had left. One that had slowAfter costs nothing: honest peers with a longer round trip
// are given up then, too, and a charge for them would shut them out for ever. The charge is 2 handshakePatience at most, so
// that 10 s later a peer has handshakePatience again, however many calls were given up.
func (p *turnPatience) gaveUp(left time.Duration) {
	p.spent = min(p.spent+left-slowAfter, 2*handshakePatience)
}

// turnWait is a call of Pending.Connect that waits for its peer.
type turnWait struct {
	c    *Conn
	left time.Duration // turnPatience.left when it began
	due  time.Time     // when it has lasted so long
}

// connects adds a call of Pending.Connect, which waits for its peer from now on. Only the holder of the listener's turn
// calls it, as all functions below.
func (l *Listener) connects(c *Conn) {
	now := l.rt.cfg.now()
	left := l.patience.left(now)
	l.connecting = append(l.connecting, turnWait{c, left, now.Add(left)})
	l.startHandshakes()
}

// connected removes the call of Pending.Connect for c, which has ended.
func (l *Listener) connected(c *Conn) {
	l.connecting = slices.DeleteFunc(l.connecting, func(w turnWait) bool { return w.c == c })
}

// giveWay gives up the calls of Pending.Connect that are due, if requests wait for slowAfter and no call does: a program
// that calls PrepareAccept beside Connect takes them before. It returns when the next is due; zero for not before a
// request or a call comes.
func (l *Listener) giveWay(now time.Time) (wake time.Time) {
	if len(l.connecting) == 0 || !l.backlog.waits() || l.calls() > 0 {
		l.delayed = time.Time{}
		return wake
	}
	if l.delayed.IsZero() {
		l.delayed = now
	}
	l.connecting = slices.DeleteFunc(l.connecting, func(w turnWait) bool {
		at := w.due
		if least := l.delayed.Add(slowAfter); least.After(at) {
			at = least
		}
		if at.After(now) {
			if wake.IsZero() || at.Before(wake) {
				wake = at
			}
			return false
		}
		l.patience.gaveUp(w.left)
		w.c.sh.r.Defer(func() {
			w.c.giveUp(fmt.Errorf("%w: %v, longer than %v while other requests wait", ErrConnectTimeout, w.c.remote, w.left))
		})
		return true
	})
	return wake
}
