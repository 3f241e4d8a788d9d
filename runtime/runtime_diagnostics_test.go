package runtime

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: the records of a connection can be read after the connection has failed, after it is closed,
// and after its runtime is closed. Each successful request has a record. The record of the failed
// request contains the error.
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
			t.Fatalf("a WRITE to a closed region ended with %v, want REM_ACCESS_ERR", err)
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
				t.Errorf("%s, the records are %v, want three successful WRITEs and then a WRITE with REM_ACCESS_ERR", when, all)
			}
			if all := plain.Recorded(); all != nil {
				t.Errorf("%s, the connection without a recorder has the records %v, want none", when, all)
			}
		}
		check("after the failure")
		if err := a.Close(testContext(t)); err != nil {
			t.Error(err)
		}
		check("after Conn.Close")
		buf.Release()
		if err := client.Close(testContext(t)); err != nil {
			t.Error(err)
		}
		check("after Runtime.Close")
	})
}

// join connects client to ln. It returns the dialing end d and the accepted end l.
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

// Rule: if a connection has one outstanding send, Stuck reports the send and the connection. If the
// connection has a recorder, the reported start time of the send is exact. Stuck does not report
// completed sends.
func TestStuckNamesTheConnection(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		server, client := b.open(t, Config{}, 1), b.open(t, Config{Reactors: 2}, 0)
		ln := must.Get(server.ListenOptions(":0", Options{Raw: true}))(t)
		if got := client.Stuck(0); got != nil {
			t.Errorf("before any operation was started, Stuck reports %v, want nothing", got)
		}
		// PeerTimeout -1 lets a SEND stay outstanding as long as the peer has no posted receive.
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
			t.Fatalf("the first call of Stuck reports %v, want both SENDs, the older SEND first", first)
		}
		looked := time.Now()
		again := client.Stuck(0)
		if len(again) != 2 {
			t.Fatalf("the second call of Stuck reports %v, want both SENDs", again)
		}
		for _, s := range again {
			if peers[s.Conn] == nil || s.PacketConn != nil || s.Bytes != 8 || s.Opcode != verbs.WRSend || s.Exact != (s.Conn.opts.Recorder > 0) {
				t.Errorf("Stuck reports %v of connection %v, want a SEND of 8 bytes of a dialed connection", s, s.Conn)
				t.Errorf("Stuck reports Exact %t, want %t", s.Exact, s.Conn != nil && s.Conn.opts.Recorder > 0)
			}
			if s.Since.Before(began) || s.Since.After(looked) {
				t.Errorf("Stuck reports a SEND as outstanding since %v, want a time between %v and %v", s.Since, began, looked)
			}
		}
		for d, l := range peers {
			f, err := l.PostRecv(bufferOf(t, server, make([]byte, 8)).Slice())
			done(t, f, err)
			done(t, futures[d], nil)
		}
		if got := client.Stuck(0); got != nil {
			t.Errorf("after all SENDs completed, Stuck reports %v, want nothing", got)
		}
	})
}

// Rule: if a PacketConn has a recorder, the operations of the PacketConn are recorded.
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
		t.Errorf("the recorded SENDs are %v, want one successful SEND of 3 bytes", sends)
	}
	if b.Recorded() != nil {
		t.Error("a PacketConn without a recorder has records, want none")
	}
}

// Rule: Attributes returns what the device reports of an open connection's queue pair. After Close it fails.
func TestAttributesOfAConnection(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RetryCount: 3, AckTimeout: verbs.AckTimeout(17), TOS: 104}})
	ctx := testContext(t)
	for name, c := range map[string]*Conn{"dialing": a, "accepting": b} {
		got := must.Get(c.Attributes(ctx))(t)
		if got.State != verbs.QPSRTS || got.RetryCnt != 3 || got.Timeout != 17 || got.AH.TrafficClass != 104 || got.Cap.MaxSendWR < DefaultSendDepth {
			t.Errorf("the attributes of the %s end are %+v, want RTS, 3 retries, the timeout code 17, the traffic class 104 and %d sends or more", name, got, DefaultSendDepth)
		}
	}
	for name, c := range map[string]*Conn{"dialing": a, "accepting": b} {
		must.Do(t, c.Close(ctx))
		if _, err := c.Attributes(ctx); !errors.Is(err, ErrConnClosed) {
			t.Errorf("after Close the error of the %s end is %v, want %v", name, err, ErrConnClosed)
		}
	}
}

// Rule: if the context of Attributes ends first, the result is the context's error alone, whenever the device answers.
func TestAttributesOfAnEndedContext(t *testing.T) {
	c, _ := connected(t, Config{})
	for range 300 {
		ctx, cancel := context.WithCancel(testContext(t))
		go cancel()
		got, err := c.Attributes(ctx)
		if err == nil != (got.State == verbs.QPSRTS) || err != nil && got != (verbs.QPAttr{}) {
			t.Fatalf("the error is %v, and the state %v", err, got.State)
		}
		cancel()
	}
}
