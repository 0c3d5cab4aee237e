package main

import (
	"fmt"
	"strings"
)

// counted formats a number of things: 1 row, 2 rows, 2 policies.
func counted[N ~int | ~int64 | ~uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if stem, ends := strings.CutSuffix(what, "cy"); ends {
		return fmt.Sprintf("%d %scies", n, stem)
	}
	if strings.HasSuffix(what, "ch") {
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// countedAre is counted with the verb after it.
func countedAre[N ~int | ~int64 | ~uint64](n N, what string) string {
	if n == 1 {
		return counted(n, what) + " is"
	}
	return counted(n, what) + " are"
}

// countedWere is counted with the verb after it.
func countedWere[N ~int | ~int64 | ~uint64](n N, what string) string {
	if n == 1 {
		return counted(n, what) + " was"
	}
	return counted(n, what) + " were"
}
