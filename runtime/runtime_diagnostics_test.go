package runtime

import (
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: the records of a connection can be read after the connection has failed, after it is closed,
// and after its runtime is closed. Each successful request has a record. The failed request has a
// record with the error.
func TestWhatAFailedConnectionDidIsRecorded(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		server, client := b.open(t, Config{}, 1), b.open(t, Config{Conn: Options{Recorder: 8}}, 0)
		ln := must.Get(server.ListenOptions(":0", Options{Raw: true}))(t)
		// KeepAlive is off, because keep-alive probes would be recorded, too.
		a, _ := join(t, client, ln, Options{Raw: true, KeepAlive: -1})
		plain, _ := join(t, client, ln, Options{Raw: true, Recorder: -1})
		region := must.Get(server.NewRegion(4096, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
		remote := must.Get(region.Remote(0, 8))(t)
		buf := must.Get(client.Alloc(8))(t)
		local := buf.Slice()
		for _, c := range []*Conn{a, plain} {
			for range 3 {
				f, err := c.Write(testContext(t), local, remote)
				done(t, f, err)
			}
		}
		if err := region.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := a.Write(testContext(t), local, remote)
		if err == nil {
			_, err = f.Await(testContext(t))
		}
		if !errors.Is(err, verbs.StatusError(verbs.WCRemAccessErr)) {
			t.Fatalf("a WRITE to what is gone: %v", err)
		}
		<-a.Done()
		check := func(when string) {
			t.Helper()
			well, all := 0, a.Recorded()
			for _, r := range all[:min(len(all), 3)] {
				if s, ok := r.Status(); ok && s == verbs.WCSuccess && r.Bytes == 8 && r.Opcode == verbs.WRRDMAWrite &&
					!r.Submitted.IsZero() && !r.Posted.Before(r.Submitted) && !r.Ended.Before(r.Posted) {
					well++
				}
			}
			if well != 3 || len(all) < 4 || !errors.Is(all[3].Err, verbs.StatusError(verbs.WCRemAccessErr)) {
				t.Errorf("%s: recorded %v, want three WRITEs and the one that failed", when, all)
			}
			if all := plain.Recorded(); all != nil {
				t.Errorf("%s: a connection without a recorder recorded %v", when, all)
			}
		}
		check("failed")
		if err := a.Close(testContext(t)); err != nil {
			t.Error(err)
		}
		check("closed")
		buf.Release()
		if err := client.Close(testContext(t)); err != nil {
			t.Error(err)
		}
		check("with the runtime closed")
	})
}

// join connects client to ln. It returns the dialing end and the listening end.
func join(t *testing.T, client *Runtime, ln *Listener, o Options) (d, l *Conn) {
	t.Helper()
	seat, err := ln.AcceptAsync()
	if err != nil {
		t.Fatal(err)
	}
	if d, err = client.DialOptions(testContext(t), ln.Addr().String(), o); err != nil {
		seat.Discard()
		t.Fatal(err)
	}
	l = must.Get(seat.Await(testContext(t)))(t)
	return d, l
}

// Rule: Stuck reports each operation that has not completed, with its connection. If the connection
// has a recorder, the reported time is exact. Completed operations are not reported.
func TestStuckNamesTheConnection(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		server, client := b.open(t, Config{}, 1), b.open(t, Config{Reactors: 2}, 0)
		ln := must.Get(server.ListenOptions(":0", Options{Raw: true}))(t)
		if got := client.Stuck(0); got != nil {
			t.Errorf("stuck: %v, want none: nothing is out", got)
		}
		// A message does not complete while the peer has no receive.
		quiet := Options{Raw: true, PeerTimeout: -1, KeepAlive: -1}
		recorded := quiet
		recorded.Recorder = 4
		peers, futures := map[*Conn]*Conn{}, map[*Conn]Future{}
		began := time.Now()
		for _, o := range []Options{quiet, recorded} {
			d, l := join(t, client, ln, o)
			peers[d] = l
			futures[d] = must.Get(d.Send(testContext(t), bufferOf(t, client, make([]byte, 8)).Slice()))(t)
		}
		first := client.Stuck(0)
		if len(first) != 2 || first[0].Since.After(first[1].Since) {
			t.Fatalf("stuck: %v, want both messages, the older first", first)
		}
		looked := time.Now()
		again := client.Stuck(0)
		if len(again) != 2 {
			t.Fatalf("stuck: %v, want both messages", again)
		}
		for _, s := range again {
			if peers[s.Conn] == nil || s.PacketConn != nil || s.Bytes != 8 || s.Opcode != verbs.WRSend || s.Exact != (s.Conn.opts.Recorder > 0) {
				t.Errorf("stuck: %v, exact %t, of connection %v", s, s.Exact, s.Conn)
			}
			if s.Since.Before(began) || s.Since.After(looked) {
				t.Errorf("out since %v, want between %v and %v", s.Since, began, looked)
			}
		}
		for d, l := range peers {
			f, err := l.PostRecv(bufferOf(t, server, make([]byte, 8)).Slice())
			done(t, f, err)
			done(t, futures[d], nil)
		}
		if got := client.Stuck(0); got != nil {
			t.Errorf("stuck: %v, want none: all has ended", got)
		}
	})
}

// Rule: the operations of a PacketConn are recorded, too.
func TestDatagramsAreRecorded(t *testing.T) {
	a := mustListenPacket(t, mainBed.open(t, Config{}, 0), Options{Recorder: 4})
	b := mustListenPacket(t, mainBed.open(t, Config{}, 1), Options{})
	a.sendBytes(t, mustResolve(t, a, b.Addr().String()), []byte("one"))
	var sends []Record
	for _, r := range a.Recorded() {
		if r.Kind.String() == "SEND" {
			sends = append(sends, r)
		}
	}
	if len(sends) != 1 || sends[0].Bytes != 3 || sends[0].Ended.IsZero() || sends[0].Err != nil {
		t.Errorf("recorded sends %v, want the one of 3 bytes", sends)
	}
	if b.Recorded() != nil {
		t.Error("recorded without a recorder")
	}
}
