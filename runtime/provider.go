package runtime

import (
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// defaultProvider is the one place that names a provider.
func defaultProvider() verbs.Provider { return soft.Default() }
