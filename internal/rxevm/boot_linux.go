package rxevm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// Boot starts a machine and returns when it accepts commands. It blocks while the image is built
// if the cache has none, and then for at most c.BootTimeout, or twice that if the kernel panics
// and is booted again; when ctx ends, it gives up. The error names the missing tools
// ([ErrNotHere]), or has the end of the kernel's log. The caller closes the machine; the owner of
// c.Cable closes it after its machines.
func Boot(ctx context.Context, c Config) (*Machine, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	for _, sh := range c.Shares {
		if err := lookup(sh.Path); err != nil {
			return nil, err
		}
	}
	if err := Missing(); err != nil {
		return nil, err
	}
	say := func(format string, args ...any) { fmt.Fprintf(c.Log, "rxevm: "+format+"\n", args...) }
	img, err := Prepare(ctx, say)
	if err != nil {
		return nil, err
	}
	if c.accel == "" {
		c.accel = accelerator(ctx, img, say)
	}
	agent, err := buildAgent(ctx)
	if err != nil {
		return nil, err
	}
	return bootAgain(ctx, &c, img, agent)
}

// panics counts the boots of this process that ended in a kernel panic. Incremented by bootAgain,
// read by [BootPanics]; it publishes nothing.
var panics atomic.Int64

// BootPanics returns how many boots of this process ended in a kernel panic, and were repeated or
// failed. It does not block.
func BootPanics() int { return int(panics.Load()) }

// bootAgain boots, and once more if the kernel panics before the agent's first message. An
// emulated kernel on a busy host sometimes does so during its own setup (of timers, of the second
// processor), before our code runs. Other failures are returned at once, and so is a second
// panic. A repetition is logged to c.Log or, without one, to standard error.
//
//	booting --(Hello)--> up
//	   \--(panic)--> booting --(Hello)--> up
//	    \               \--(anything else, a panic too)--> Boot fails
//	     \--(anything else)--> Boot fails
func bootAgain(ctx context.Context, c *Config, img *Image, agent []byte) (*Machine, error) {
	m, err := bootWithin(ctx, c, img, agent)
	p, ok := errors.AsType[*bootPanic](err)
	if !ok || ctx.Err() != nil {
		return m, err
	}
	to := c.Log
	if to == io.Discard {
		to = os.Stderr
	}
	fmt.Fprintln(to, "rxevm: guest kernel panicked at boot, booting again:", p.line)
	return bootWithin(ctx, c, img, agent)
}

// bootWithin is boot within c.BootTimeout, and counts panics.
func bootWithin(ctx context.Context, c *Config, img *Image, agent []byte) (*Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, c.BootTimeout)
	defer cancel()
	m, err := boot(ctx, c, img, agent)
	if _, ok := errors.AsType[*bootPanic](err); ok {
		panics.Add(1)
	}
	return m, err
}

// bootPanic is a boot that ended in a kernel panic.
type bootPanic struct {
	line string // of the log
	err  error  // the error of the boot
}

func (p *bootPanic) Error() string { return p.err.Error() }
func (p *bootPanic) Unwrap() error { return p.err }

// boot is one boot, with everything prepared.
func boot(ctx context.Context, c *Config, img *Image, agent []byte) (_ *Machine, err error) {
	m := &Machine{jobs: map[uint32]*Process{}, stop: make(chan struct{})}
	if m.image, err = img.use(); err != nil {
		return nil, err
	}
	if m.dir, m.owner, err = ownFolder(); err != nil {
		return nil, errors.Join(err, m.image.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.discard())
		}
	}()
	if err := os.Mkdir(m.Dir(), 0o755); err != nil {
		return nil, err
	}
	fds, err := m.plug(c)
	defer func() {
		for _, f := range fds {
			_ = f.Close() // QEMU has its own by now
		}
	}()
	if err != nil {
		return nil, err
	}
	setup := wire.Setup{Shares: shares(c, m.Dir()), CableIP: m.address, NVDIMM: c.NVDIMM != ""}
	initrd := filepath.Join(m.dir, "initrd")
	if err := initramfs(initrd, img, agent, setup); err != nil {
		return nil, err
	}
	if m.qemu, err = startQEMU(arguments(c, img, initrd, m.Dir(), c.accel, m.plugged), fds, &m.console); err != nil {
		return nil, fmt.Errorf("rxevm: starting QEMU: %w", err)
	}
	if err := m.greet(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// plug makes the ends of the link, the monitor and the cable for QEMU, in the order of their
// numbers, and keeps ours.
func (m *Machine) plug(c *Config) (theirs []*os.File, err error) {
	if m.link, theirs, err = pair(theirs); err != nil {
		return theirs, err
	}
	if m.monitor.conn, theirs, err = pair(theirs); err != nil {
		return theirs, err
	}
	if c.Cable == nil {
		return theirs, nil
	}
	var conn net.Conn
	if conn, theirs, err = pair(theirs); err != nil {
		return theirs, err
	}
	if m.plugged, err = c.Cable.plug(conn); err != nil {
		return theirs, errors.Join(err, conn.Close())
	}
	m.address = fmt.Sprintf("10.78.0.%d/24", m.plugged)
	return theirs, nil
}

// pair makes a connected pair of stream sockets: one for us, the other appended
// to theirs.
func pair(theirs []*os.File) (net.Conn, []*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, theirs, fmt.Errorf("rxevm: socketpair: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "ours")
	defer ours.Close() // FileConn has its own
	theirs = append(theirs, os.NewFile(uintptr(fds[1]), "QEMU's"))
	conn, err := net.FileConn(ours)
	return conn, theirs, err
}

// greet waits for the agent's first message.
func (m *Machine) greet(ctx context.Context) error {
	type greeting struct {
		wire.Greeting
		err error
	}
	in := bufio.NewReader(m.link)
	came := make(chan greeting, 1)
	go func() {
		f, err := wire.Read(in)
		g := greeting{err: err}
		if err == nil {
			if f.Kind != wire.Hello {
				g.err = fmt.Errorf("%w: kind %d before hello", wire.ErrFrame, f.Kind)
			} else {
				g.err = f.Decode(&g.Greeting)
			}
		}
		came <- g
	}()
	var why error
	select {
	case g := <-came:
		if g.err == nil {
			m.hello = g.Greeting
			m.heard.Store(time.Now())
			m.ended.Go(func() { m.receive(in) })
			m.ended.Go(m.watch)
			return nil
		}
		why = fmt.Errorf("the link: %w", g.err)
		// The log is complete when QEMU is dead.
		select {
		case <-m.qemu.dead:
		case <-time.After(killTime):
		}
	case <-m.qemu.dead:
		why = errors.New("QEMU ended")
	case <-ctx.Done():
		why = ctx.Err()
	}
	m.kill()
	if s := m.console.why(); s != "" {
		why = errors.New(s)
	} else if s := m.qemu.said(); s != "" {
		why = fmt.Errorf("%w: %s", why, s)
	}
	err := fmt.Errorf("rxevm: the machine did not boot: %w\n%s", why, tail(m.console.text(), logTail))
	if line := m.console.panicked(); line != "" {
		return &bootPanic{line, err}
	}
	return err
}
