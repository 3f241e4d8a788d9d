package runtime

import "testing"

// Rule: the identifier of an accepted connection reports to the reactor that owns
// the connection, whichever has the listener: its events come there while the
// listener's reactor is away, and nobody else has it as a target.
func TestAnAcceptedIdentifierMovesToItsReactor(t *testing.T) {
	const reactors, conns = 2, 4
	onBeds(t, func(t *testing.T, d bed) {
		cfg := Config{Reactors: reactors, NoCallerDriving: true, ConnectTimeout: patience()}
		server, client := d.open(t, cfg, 1), d.open(t, Config{ConnectTimeout: patience()}, 0)
		ctx := testContext(t)
		ln, err := server.Listen(":0")
		if err != nil {
			t.Fatal(err)
		}
		home := ln.sh
		var near, far, farPeers []*Conn
		for range conns {
			seat, err := ln.AcceptAsync()
			if err != nil {
				t.Fatal(err)
			}
			a, err := client.Dial(ctx, ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			b, err := seat.Await(ctx)
			if err != nil {
				t.Fatal(err)
			}
			belongs(t, server, b)
			if b.sh == home {
				near = append(near, b)
			} else {
				far, farPeers = append(far, b), append(farPeers, a)
			}
		}
		if len(near) == 0 || len(far) == 0 {
			t.Fatalf("%d connections on the listener's reactor, %d on others: both are wanted", len(near), len(far))
		}
		enter, leave := make(chan struct{}), make(chan struct{})
		held := make(chan error, 1)
		go func() { held <- home.r.Do(ctx, func() { close(enter); <-leave }) }()
		<-enter
		for _, a := range farPeers {
			a.Abort()
		}
		for i, b := range far {
			select {
			case <-b.Done():
			case <-ctx.Done():
				t.Errorf("far connection %d did not hear of its end while the listener's reactor was away", i)
			}
		}
		close(leave)
		if err := <-held; err != nil {
			t.Fatal(err)
		}
		for i, b := range near {
			if err := b.Err(); err != nil {
				t.Errorf("near connection %d, whose peer is there, ended with %v", i, err)
			}
		}
	})
}

// belongs checks that c is a target of its own reactor's connection events, and of
// no other's.
func belongs(t *testing.T, rt *Runtime, c *Conn) {
	t.Helper()
	for i, sh := range rt.shards {
		if err := sh.r.Do(testContext(t), func() {
			has := false
			for _, target := range sh.targets {
				has = has || target == cmTarget(c)
			}
			if has != (sh == c.sh) {
				t.Errorf("reactor %d has the identifier: %t; it has the connection: %t", i, has, sh == c.sh)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}
