package verbstest

import (
	"fmt"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

var queryCases = []Spec{
	{Name: "query_device_has_what_it_says", Rule: "ibv_query_device(3)", run: queryHas},
	{Name: "query_device_and_its_features_agree", Rule: "ibv_query_device(3): device_cap_flags", run: queryAgrees},
	{Name: "query_gid_entry_agrees_with_query_gid", Rule: "ibv_query_gid_ex(3), ibv_query_gid_table(3)", run: queryGID},
	{Name: "query_pkey_reads_the_default_key", Rule: "ibv_query_pkey(3); IBTA 10.9.1.2: 0xffff", run: queryPKey},
	{Name: "query_qp_init_attr_is_what_it_was_made_of", Rule: "ibv_query_qp(3): init_attr", run: queryInit},
	{Name: "query_device_name_and_address", Rule: "ibv_get_device_name(3), ibv_get_device_guid(3)", run: queryName},
}

func queryHas(c *Case) {
	for _, e := range []*End{c.A, c.B} {
		d, err := e.ctx.QueryDevice()
		c.must(err, "query_device")
		for what, n := range map[string]int{"queue pairs": d.MaxQP, "work requests": d.MaxQPWR, "elements": d.MaxSGE, "completion queues": d.MaxCQ,
			"completions": d.MaxCQE, "regions": d.MaxMR, "domains": d.MaxPD, "completion vectors": d.CompVectors, "ports": d.PhysPorts} {
			if n < 1 {
				c.failf("%s has %d %s", e.name, n, what)
			}
		}
		if d.MaxMRSize < 1<<20 || len(d.QPTypes) == 0 || d.Opcodes == 0 {
			c.failf("the device of %s says %+v", e.name, d)
		}
	}
}

// queryAgrees: a feature flag agrees with the numbers and opcodes of the feature.
func queryAgrees(c *Case) {
	d, err := c.A.ctx.QueryDevice()
	c.must(err, "query_device")
	agree := func(what string, said, has bool) {
		c.t.Helper()
		if said != has {
			c.failf("%s: the flags say %v, the rest says %v (%+v)", what, said, has, d)
		}
	}
	has := func(b verbs.DeviceCaps) bool { return d.Caps&b != 0 }
	agree("memory windows", has(verbs.CapMemWindow|verbs.CapMemWindow2A|verbs.CapMemWindow2B), d.MaxMW > 0 && d.Opcodes.Has(verbs.WRBindMW))
	agree("ATOMIC_WRITE", has(verbs.CapAtomicWrite), d.Opcodes.Has(verbs.WRAtomicWrite))
	agree("FLUSH", has(verbs.CapFlushGlobal|verbs.CapFlushPersistent), d.Opcodes.Has(verbs.WRFlush))
	agree("invalidation", has(verbs.CapMemMgt), d.Opcodes.Has(verbs.WRLocalInv) && d.Opcodes.Has(verbs.WRSendWithInv))
	agree("XRC", has(verbs.CapXRC), slices.Contains(d.QPTypes, verbs.QPTXRCRecv) && slices.Contains(d.QPTypes, verbs.QPTXRCSend))
	if slices.Contains(d.QPTypes, verbs.QPTUD) && d.MaxAH == 0 {
		c.failf("there are UD queue pairs and no address handles")
	}
	if has(verbs.CapSRQResize) && d.MaxSRQ == 0 || d.MaxSRQ > 0 && (d.MaxSRQWR == 0 || d.MaxSRQSGE == 0) {
		c.failf("shared receive queues: %d of %d receives of %d elements, flags %#x", d.MaxSRQ, d.MaxSRQWR, d.MaxSRQSGE, uint64(d.Caps))
	}
	if (d.MaxMcastGrp > 0) != (d.MaxMcastQP > 0) {
		c.failf("%d multicast groups of %d queue pairs", d.MaxMcastGrp, d.MaxMcastQP)
	}
	for what, n := range map[string]int{"SRQ": d.MaxSRQ, "MW": d.MaxMW, "AH": d.MaxAH} {
		if n < 0 {
			c.failf("%d of %s", n, what)
		}
	}
}

func queryGID(c *Case) {
	p, err := c.A.ctx.QueryPort(c.A.ep.Port)
	c.must(err, "query_port")
	table, err := c.A.ctx.QueryGIDTable()
	c.must(err, "query_gid_table")
	read := []verbs.GIDEntry{}
	for _, e := range table {
		if e.Port == c.A.ep.Port {
			read = append(read, e)
		}
	}
	for i := range p.GIDTblLen {
		g, err := c.A.ctx.QueryGID(c.A.ep.Port, i)
		if err != nil || g == (verbs.GID{}) {
			continue // an empty entry
		}
		e, err := c.A.ctx.QueryGIDEntry(c.A.ep.Port, i)
		c.must(err, "query_gid_ex of entry %d", i)
		if e.GID != g || e.Index != i || e.Port != c.A.ep.Port {
			c.failf("entry %d of port %d is %v, query_gid_ex reads %+v", i, c.A.ep.Port, g, e)
		}
		if p.LinkLayer == verbs.LinkEthernet && e.Type == verbs.GIDInfiniBand && !c.pair.Caps.CMOnly { // iWARP has that type
			c.failf("a port of Ethernet has an address of type %v", e.Type)
		}
		if len(read) == 0 || read[0] != e {
			c.failf("the next of port %d in query_gid_table is %+v, query_gid_ex reads %+v", c.A.ep.Port, read, e)
		}
		read = read[1:]
	}
	if len(read) > 0 {
		c.failf("query_gid_table has %+v, which query_gid does not read", read)
	}
	_, err = c.A.ctx.QueryGIDEntry(c.A.ep.Port, p.GIDTblLen)
	c.refused(err, "query_gid_ex behind the table")
	_, err = c.A.ctx.QueryGIDEntry(200, 0)
	c.refused(err, "query_gid_ex of a port that is not there")
}

func queryPKey(c *Case) {
	p, err := c.A.ctx.QueryPort(c.A.ep.Port)
	c.must(err, "query_port")
	k, err := c.A.ctx.QueryPKey(c.A.ep.Port, 0)
	c.must(err, "query_pkey")
	if k != 0xffff {
		c.failf("the first partition key is %#x", k)
	}
	for _, i := range []int{-1, p.PKeyTblLen} {
		_, err = c.A.ctx.QueryPKey(c.A.ep.Port, i)
		c.refused(err, fmt.Sprintf("query_pkey of entry %d of %d", i, p.PKeyTblLen))
	}
	_, err = c.A.ctx.QueryPKey(200, 0)
	c.refused(err, "query_pkey of a port that is not there")
}

func queryInit(c *Case) {
	o := c.defaults()
	o.sigAll = true
	q := c.A.newQP(o, psnA)
	got := q.InitAttr()
	if got.SendCQ != q.scq.CQ || got.RecvCQ != q.rcq.CQ || got.SRQ != nil || got.Type != verbs.QPTRC || !got.SQSigAll || got.Cap != q.cap || got.UserData != q.UserData() {
		c.failf("the queue pair was made of %v, %v, RC, sq_sig_all, %+v; init_attr reads %+v", q.scq.CQ, q.rcq.CQ, q.cap, got)
	}
}

func queryName(c *Case) {
	ds, err := c.A.ep.Provider.Devices()
	c.must(err, "get_device_list")
	me := c.A.ctx.Device()
	i := slices.IndexFunc(ds, func(d verbs.DeviceInfo) bool { return d.Name == me.Name })
	if i < 0 || ds[i].GUID != me.GUID || me.GUID == 0 {
		c.failf("the device %s with GUID %#x is not listed so: %+v", me.Name, me.GUID, ds)
	}
	seen := map[string]bool{}
	for _, d := range ds {
		if d.Name == "" || seen[d.Name] {
			c.failf("the device list has the name %q empty or twice", d.Name)
		}
		seen[d.Name] = true
	}
}
