package verbstest

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
)

// wakesWithin is the limit for waking a sleeper.
const wakesWithin = 5 * time.Second

// sleeperKey is the channel's key in the poller.
const sleeperKey = 7

func wakesSleeper(c *Case) {
	a, b, src := c.armed(2)
	p, err := sys.NewPoller()
	c.must(err, "making a poller")
	c.defers(p.Close)
	c.must(p.Attach(b.rcq.ch, sleeperKey), "attaching the channel")
	for range 2 {
		// A poller may wake spuriously; sleep until it does not.
		for sleep(c, p, time.Millisecond) {
			if b.rcq.event() {
				c.failf("a channel that nothing was armed for has an event")
			}
		}
		b.rcq.arm(false)
		a.send(sendOf(1, src.all()))
		b.rcq.take(1)
		c.settle()
		if !sleep(c, p, wakesWithin) {
			c.failf("the channel got an event and woke nobody")
		}
		b.rcq.untilEvent("the sleeper was woken")
		for b.rcq.event() {
		}
	}
	c.must(p.Detach(sleeperKey), "detaching the channel")
}

// sleep waits on the poller for at most d and reports whether the channel was ready.
func sleep(c *Case, p *sys.Poller, d time.Duration) bool {
	c.t.Helper()
	end := time.Now().Add(d)
	keys := make([]uint32, 4)
	for time.Now().Before(end) {
		n, err := p.Wait(end, keys)
		c.must(err, "sleeping on the channel")
		if n > 0 {
			if n != 1 || keys[0] != sleeperKey {
				c.failf("the poller reports %d sources, the first is %d; it has one, %d", n, keys[0], sleeperKey)
			}
			return true
		}
	}
	return false
}

// readable checks the descriptor itself, where there is one.
func readable(c *Case) {
	a, b, src := c.armed(2)
	fd := b.rcq.ch.FD()
	if _, ok := fdReadable(fd); !ok {
		c.skipped = "channels have no descriptor here"
		c.t.Skip("not applicable: " + c.skipped)
	}
	look := func(want bool, when string) {
		c.t.Helper()
		c.until("a descriptor that is readable: "+when, func() bool { got, _ := fdReadable(fd); return got == want })
		c.settle()
		if got, _ := fdReadable(fd); got != want {
			c.failf("%s the descriptor is readable: %v", when, got)
		}
	}
	for range 2 {
		b.rcq.event() // makes a spuriously readable descriptor unreadable
		look(false, "before the event")
		b.rcq.arm(false)
		a.send(sendOf(1, src.all()))
		b.rcq.take(1)
		look(true, "with an event queued")
		b.rcq.untilEvent("the descriptor is readable")
		b.rcq.event()
		look(false, "with every event taken")
	}
}
