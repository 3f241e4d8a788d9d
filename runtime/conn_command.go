package runtime

import (
	"errors"
	"runtime"

	"github.com/verbena-rdma/verbena/verbs"
)

// connCommand is a command: a call that makes a queue pair, moves it or ends its connection. On a card each is a
// command of the firmware, which takes up to milliseconds on a virtual function. With the turn held it
// would delay every connection of the reactor, so it runs on another goroutine. Where control calls take
// microseconds (verbs.DeviceInfo.QuickControl), and in a stepped runtime, it runs at once with the turn
// held.
//
// A connection makes one command at a time, so its calls keep their order:
//
//	               Conn.command            the call returns
//	at rest ──────────────────> under way ──────────────────> done is called, then the kept events: at rest
//	  │                           │   ^ │
//	  │                           │   └─┘ an event of the identifier: is kept
//	  │ destroy, detach           │ destroy, detach: the state changes at once, as at rest
//	  v                           v            the call returns
//	closing the identifier    leaving ─────────────────────────> done is called: closing the identifier
//
// So whatever ends a connection (Close, Abort, a timeout, the removal of the device) takes effect at
// once. Only the identifier lives until the call has returned. done reads Conn.state, because the connection
// may have ended meanwhile. If the connection is gone before its command has begun, the command does not begin.
type connCommand struct {
	c    *Conn
	run  func() error // without the turn: may use the identifier, and what no other goroutine does
	done func(error)  // with the turn
}

// connCommands is the part of a connection for its commands. The holder owns it.
type connCommands struct {
	underWay bool
	kept     []*verbs.CMEvent // came while a command was under way
	atRest   []func()         // called when it has ended
}

// commands has the commands of a shard. The holder owns it.
type commands struct {
	off   bool // commands run without the turn. Immutable
	most  int  // how many run at the same time. Immutable
	begun int
	// waiting has the commands that wait because as many others are under way: first those for which a peer
	// waits, or a program that closes; then those that make queue pairs. Otherwise a handshake would take
	// as long as it takes to make the queue pairs of all the others that dial at once. The oldest of each
	// comes first.
	waiting [2][]*connCommand
}

// errNotBegun is the result of a command whose connection is gone before the command has begun.
var errNotBegun = errors.New("runtime: the connection is gone")

// The lines of commands.waiting.
const (
	lineStep = iota
	lineMake
)

// maxCommands is the largest number of commands that a shard makes at the same time. Firmware serves
// several at once. minCommands is the least number, so that a slow one does not stop all.
const minCommands, maxCommands = 2, 4

// commandsAtOnce returns how many commands a shard makes at the same time. A command occupies a thread, and
// a processor of the Go runtime until its scheduler notices that the thread waits in C, tens of microseconds
// later. Half of the processors are left to those who do not wait, if there are enough.
func commandsAtOnce() int { return min(max(runtime.GOMAXPROCS(0)/2, minCommands), maxCommands) }

// command makes the call run, and then calls done with its result. In the meantime the caller's
// connection may have ended. Holder only.
func (c *Conn) command(line int, run func() error, done func(error)) {
	s := c.sh
	if !s.commands.off {
		done(run())
		return
	}
	c.underWay = true
	cmd := &connCommand{c, run, done}
	if s.commands.begun == s.commands.most {
		s.commands.waiting[line] = append(s.commands.waiting[line], cmd)
		return
	}
	s.commands.begun++
	s.begin(cmd)
}

// begin starts a command, which is counted in begun.
func (s *shard) begin(cmd *connCommand) {
	go func() {
		err := cmd.run()
		s.r.Defer(func() {
			s.beginNext()
			cmd.c.commanded(cmd.done, err)
		})
	}()
}

// beginNext starts the command that comes first, when another one has ended. Holder only.
func (s *shard) beginNext() {
	for next := s.commands.next(); next != nil; next = s.commands.next() {
		if next.c.state != connGone {
			s.begin(next)
			return
		}
		next.c.commanded(next.done, errNotBegun)
	}
	s.commands.begun--
}

// next takes the command that comes first; nil if none waits.
func (q *commands) next() *connCommand {
	for i := range q.waiting {
		if line := &q.waiting[i]; len(*line) > 0 {
			first := (*line)[0]
			if *line = (*line)[1:]; len(*line) == 0 {
				*line = nil
			}
			return first
		}
	}
	return nil
}

// commanded handles the end of a command. Holder only.
func (c *Conn) commanded(done func(error), err error) {
	c.underWay = false
	kept := c.kept
	c.kept = nil
	if err != nil { // an event has the reason why the call failed
		for _, ev := range kept {
			if ev.Type != verbs.CMEstablished {
				c.onCM(ev)
			}
		}
		kept = nil
	}
	done(err)
	for _, ev := range kept { // done may have begun the next command, which keeps them
		c.onCM(ev)
	}
	if c.underWay {
		return
	}
	atRest := c.atRest
	c.atRest = nil
	for _, fn := range atRest {
		fn()
	}
}

// keeps keeps an event for the end of the command that is under way. Otherwise it returns false. The
// removal of the device is not kept: it ends what waits for other devices of the process, too.
func (c *Conn) keeps(ev *verbs.CMEvent) bool {
	if !c.underWay || ev.Type == verbs.CMDeviceRemoval {
		return false
	}
	c.kept = append(c.kept, ev)
	return true
}

// whenAtRest calls fn when no command is under way. Holder only.
func (c *Conn) whenAtRest(fn func()) {
	if c.underWay {
		c.atRest = append(c.atRest, fn)
		return
	}
	fn()
}

// closeID is shard.closeID for the connection's identifier, when no command uses it. Holder only.
func (c *Conn) closeID(done func(error)) {
	id := c.id
	c.whenAtRest(func() { c.sh.closeID(id, done) })
}
