// Package toy is mutated by a test. Its tests assert some of what it does.
package toy

import _ "embed"

//go:embed toy.lua
var script string

func sum(most int) (sum int, err error) {
	for i := range most {
		if i == 3 {
			break
		}
		sum += i
	}
	return sum, nil
}

func count(most int) (n int) {
	defer double(&n)
	for n < most {
		n++
	}
	return n
}

func double(n *int) { *n = 2 * *n }

func untested(a, b int) bool { return a < b }
