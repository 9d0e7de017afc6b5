package main

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// luaSites find what can be changed in a line of a script: what they match is replaced.
var luaSites = []struct {
	kind  string
	match *regexp.Regexp
	with  map[string]string
}{
	{"comparison turned", regexp.MustCompile(`==|~=|<=|>=|<|>`), map[string]string{"==": "~=", "~=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}},
	{"boundary moved", regexp.MustCompile(`<=|>=|<|>`), map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}},
	{"operator swapped", regexp.MustCompile(` (and|or|\+|-) `), map[string]string{" and ": " or ", " or ": " and ", " + ": " - ", " - ": " + "}},
	{"not removed", regexp.MustCompile(`\bnot `), map[string]string{"not ": ""}},
	{"constant changed", regexp.MustCompile(`\b\d+\b`), nil},
	{"call removed", regexp.MustCompile(`^\s*(call|pcall|redis\.p?call)\(.*\)$`), nil},
	{"statement removed", regexp.MustCompile(`^\s*[\w.]+(\[[^=]*\])? = .*$`), nil},
}

// luaMutations are all changes of a script that it compiles with.
func luaMutations(text string) (all []*mutation) {
	start := 0
	for number, line := range strings.Split(text, "\n") {
		code, _, _ := strings.Cut(line, "--")
		code = strings.TrimRight(code, " \t")
		for _, site := range luaSites {
			for _, at := range site.match.FindAllStringIndex(code, -1) {
				was := code[at[0]:at[1]]
				with := site.with[was]
				if n, err := strconv.Atoi(was); err == nil {
					if n > 16 {
						continue
					}
					with = strconv.Itoa(n + 1)
				}
				changed := text[:start+at[0]] + with + text[start+at[1]:]
				if _, err := parse.Parse(strings.NewReader(changed), ""); err != nil {
					continue
				}
				all = append(all, &mutation{kind: "Lua: " + site.kind, function: strings.TrimSpace(code), line: number + 1, was: was, edit: edit{start + at[0], start + at[1], with}})
			}
		}
		start += len(line) + 1
	}
	return all
}
