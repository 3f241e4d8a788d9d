package ibv

import (
	"os"
	"regexp"
)

// needed are the functions of libibverbs that shim.h marks as needed.
var needed = func() (names []string) {
	text, err := os.ReadFile("shim.h")
	if err != nil {
		panic(err) // the test runs in its own folder
	}
	for _, m := range regexp.MustCompile(`X\(1, "IBVERBS_[\d.]+", .*?(ibv_\w+),`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	return names
}()
