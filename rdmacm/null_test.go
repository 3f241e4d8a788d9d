//go:build linux && cgo && !portable

package rdmacm

import (
	"errors"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// onNull are the tests that TestOnTheNullDevice runs. The null device is a C library in place of libibverbs and
// librdmacm.
var onNull = []func(*testing.T){
	TestContract15EachPostIsOneRequest,
	TestContract16CompletionsAreWaitedFor,
	TestContract17ReceivesBeforeTheConnection,
	TestContract18PrivateData,
	TestContract19RetriesOfAConnection,
	TestContract20DisconnectFlushes,
	TestContract21DatagramsHaveTheKeyOfThePortSpace,
	TestSharedReceives,
	TestASharedCompletionQueue,
	TestCompletionsHaveRoom,
	TestWaitsThatEndedLoseNothing,
	TestPolling,
	TestPostsAllocateNothing,
	TestECEGoesBothWays,
	TestRejectECE,
	TestNotifyEstablishes,
	TestInitQPAttr,
	TestSendOnlyMember,
	TestReusedPort,
	TestEndpointsExchangeMessages,
	TestPrivateDataGoesBothWays,
	TestEndpointsKnowTheirAddresses,
	TestIdentifiersReportToTheirChannel,
	TestAnIdentifierMovesToAChannelAndBack,
	TestGetEventEnds,
	TestAProtectionDomainOfTheProgram,
	TestAddrInfoIsResolvedWithAnEvent,
	TestContextsOfCalls,
	TestAListMeetsAFullQueue,
	TestReceivesOfADestroyedXRCQueue,
	TestAnEndOfAnotherRequestIsSkipped,
	TestSeveralGoroutinesDestroyAnIdentifier,
	TestARefusedCopyLeavesTheDomain,
	TestARejectionForReasonZero,
	TestEmptyBuffers,
	TestReadsAndWrites,
	TestMemoryThatIsCopied,
	TestSignaling,
	TestFailuresComplete,
	TestReceivesAreAQueue,
	TestAListStopsAtItsBadRequest,
	TestFullQueuesRefuse,
	TestMisuseOfPosts,
	TestAQueuePairIsMadeAgain,
	TestDatagrams,
	TestMulticast,
	TestJoinRightAfterOneThatHasEnded,
	TestSpellingsOfAGroup,
	TestEventChannelReady,
	TestCQReady,
	TestLimitOfASharedQueue,
	TestXRCOfIdentifiers,
	TestXRCMeetsXRC,
	TestXClientAndXServer,
	TestEndpointsWithGIDs,
	TestGroupsWithGIDs,
}

// Rule: the package does over libibverbs what it does on the software RNIC.
func TestOnTheNullDevice(t *testing.T) {
	if os.Getenv(devicesVariable) != "" {
		t.Skipf("%s is set: the tests run on other devices", devicesVariable)
	}
	paths, err := nulldev.Build()
	if errors.Is(err, nulldev.ErrNoCompiler) {
		t.Skipf("%v (Debian: apt-get install gcc)", err)
	}
	must.Do(t, err)
	nullBed = must.Get(ibv.New(ibv.Config{Verbs: paths.Verbs, RDMACM: paths.RDMACM}))(t)
	defer func() { nullBed = nil }()
	for _, test := range onNull {
		full := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
		t.Run(full[strings.LastIndex(full, ".")+1:], test)
	}
}
