package verbstest

import "slices"

// topic is a part of the suite.
type topic struct {
	name  string
	cases []Spec
}

// topics are the parts in the order in which they run.
var topics = []topic{
	{"Objects, keys and queries", slices.Concat(objectCases, keyCases, queryCases)},
	{"Queue pair states", slices.Concat(stateCases, kindCases)},
	{"Flushing", flushCases},
	{"Posting", slices.Concat(postCases, boundsCases, inlineCases, signalCases)},
	{"SEND", sendCases},
	{"RDMA and atomics", slices.Concat(rdmaCases, atomicCases)},
	{"Access", slices.Concat(accessCases, localCases)},
	{"Completion queues and their events", slices.Concat(armCases, cqCases, cqLifeCases)},
	{"Packets, retries and faults", slices.Concat(mtuCases, rnrCases, retryCases, faultCases)},
	{"UC", ucCases},
	{"UD", slices.Concat(udCases, udErrorCases)},
	{"Multicast", mcastCases},
	{"Shared receive queues", slices.Concat(srqCases, srqEventCases)},
	{"Memory windows and invalidation", slices.Concat(mwCases, mw2Cases, invalidateCases)},
	{"FLUSH and ATOMIC_WRITE", slices.Concat(flushOpCases, atomicWriteCases)},
	{"XRC", xrcCases},
	{"Asynchronous events", asyncCases},
	{"Ports and removal", slices.Concat(portCases, removalCases)},
	{"Connections", slices.Concat(cmCases, cmRefusalCases, cmRemovalCases)},
	{"Port space UDP and joining groups", slices.Concat(cmUDPCases, cmJoinCases)},
	{"Memory on demand and of other devices", slices.Concat(odpCases, dmabufCases)},
	{"Thread domains, and what else may be asked", slices.Concat(tdCases, askCases)},
	{"Capabilities", capsCases},
}
