//go:build linux && !portable

package rpma

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
)

// readable polls a descriptor for up to the given time.
func readable(t *testing.T, fd int, d time.Duration) bool {
	t.Helper()
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(d.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			must.Do(t, err)
			return n == 1
		}
	}
}

// Rule: the descriptors of endpoints, connections and CQs are readable as long as there is something to take,
// and no longer. A program can wait for all of them at once.
func TestDescriptorsToWaitOn(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		ep, port := r.listen()
		efd := must.Get(ep.FD())(t)
		expect := func(what string, fd int, want bool) {
			t.Helper()
			wait := time.Duration(0)
			if want {
				wait = patience
			}
			if got := readable(t, fd, wait); got != want {
				t.Fatalf("%s: readable %t, want %t", what, got, want)
			}
		}
		_, err := ep.TryNextConnReq(r.ctx, nil)
		isCode(t, "no request", err, ErrNoEvent)
		expect("an endpoint without a request", efd, false)
		var clients []*Conn
		for i := range byte(2) {
			c := must.Get(r.request(ep, port, nil).Connect([]byte{i + 1}))(t)
			r.closes(c)
			clients = append(clients, c)
		}
		servers := make([]*Conn, 2)
		cfg := &ConnConfig{RCQSize: 4}
		for servers[0] == nil || servers[1] == nil {
			expect("an endpoint with a request", efd, true)
			q, err := ep.TryNextConnReq(r.ctx, cfg)
			if errors.Is(err, ErrNoEvent) {
				continue
			}
			must.Do(t, err)
			of := q.PrivateData()[0] - 1
			servers[of] = must.Get(q.Connect(nil))(t)
			r.closes(servers[of])
		}
		for _, end := range append(clients, servers...) {
			fd := must.Get(end.EventFD())(t)
			expect("a connection with the event Established", fd, true)
			r.event(end, Established)
			expect("a connection without an event", fd, false)
		}
		c := clients[0]
		m, into := r.mr(0, 64, SendBuf), r.mr(1, 64, RecvBuf)
		for _, end := range servers {
			for i := range uint64(2) {
				must.Do(t, end.Recv(into, 0, 8, i))
			}
		}
		fd, rfd := must.Get(c.CQ().FD())(t), []int{must.Get(servers[0].RCQ().FD())(t), must.Get(servers[1].RCQ().FD())(t)}
		expect("an empty CQ", fd, false)
		for i := range uint64(2) {
			must.Do(t, c.Send(m, 0, 8, CompletionAlways, i))
		}
		for i := range uint64(2) {
			expect("a CQ with completions", fd, true)
			r.done(c.CQ(), i)
		}
		expect("a CQ whose completions were taken", fd, false)
		for i := range uint64(2) {
			expect("a receive CQ with completions", rfd[0], true)
			if n := must.Get(servers[0].RCQ().GetWC(make([]WC, 1)))(t); n != 1 {
				t.Fatalf("took %d completions %d, want 1", n, i)
			}
		}
		expect("a receive CQ whose completions were taken", rfd[0], false)
		expect("the receive CQ of another connection", rfd[1], false)
		must.Do(t, c.Disconnect())
		efd = must.Get(c.EventFD())(t)
		expect("a connection that is closed", efd, true)
		r.event(c, Closed)
		must.Do(t, c.Close(r.ctx))
		_, err = c.EventFD()
		isCode(t, "the descriptor of a closed connection", err, ErrNotSupported)
		_, err = c.CQ().FD()
		isCode(t, "the descriptor of a CQ of a closed connection", err, ErrNotSupported)
	})
}

// Rule: the shared channel has one descriptor, readable while either CQ has a completion.
func TestSharedChannelDescriptor(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		c, s := r.connect(&ConnConfig{SharedChannel: true, RCQSize: 1}, nil)
		fd := must.Get(c.CompletionFD())(t)
		if a, b := must.Get(c.CQ().FD())(t), must.Get(c.RCQ().FD())(t); a != fd || b != fd {
			t.Errorf("the CQs have the descriptors %d and %d, the channel %d; want one", a, b, fd)
		}
		m, into := r.mr(1, 64, SendBuf|RecvBuf), r.mr(0, 64, RecvBuf|SendBuf)
		must.Do(t, c.Recv(into, 0, 8, 1))
		must.Do(t, s.Recv(m, 0, 8, 2))
		if readable(t, fd, 0) {
			t.Error("the channel of empty CQs is readable")
		}
		must.Do(t, s.Send(m, 8, 8, CompletionAlways, 3))
		must.Do(t, c.Send(into, 8, 8, CompletionAlways, 4))
		for _, cq := range []*CQ{c.RCQ(), c.CQ()} {
			if !readable(t, fd, patience) {
				t.Fatal("the channel is not readable beside a completion")
			}
			r.next(cq)
		}
		if readable(t, fd, 0) {
			t.Error("the channel is readable when all completions were taken")
		}
		must.Do(t, s.Close(r.ctx))
	})
}
