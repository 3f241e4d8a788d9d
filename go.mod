module github.com/verbena-rdma/verbena

go 1.26.0

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/panjf2000/ants/v2 v2.12.1
	go.uber.org/atomic v1.12.0
	golang.org/x/sys v0.49.0
	pgregory.net/rapid v1.3.0
)

require golang.org/x/sync v0.11.0 // indirect
