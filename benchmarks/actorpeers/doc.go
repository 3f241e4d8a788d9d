// Command actorpeers measures the local actors of runtime/actor beside hollywood, protoactor-go, ergo and goakt. It is a
// module of its own, which keeps their dependencies out of the library's module.
//
//	cd benchmarks/actorpeers
//	go run -ldflags "-X google.golang.org/protobuf/reflect/protoregistry.conflictPolicy=ignore" .
//
// Two of the libraries register protocol buffers of the same name, actor.proto, which a program must permit.
//
// The versions are the newest that our module mirror serves.
package main
