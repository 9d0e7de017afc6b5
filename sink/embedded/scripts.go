package embedded

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// scripts runs all Lua scripts in one state, because making a state takes longer than most scripts
// do. No script can leave anything there, because globals are read-only.
type scripts struct {
	db      *database
	state   *lua.LState
	known   map[string]*lua.FunctionProto // by the SHA-1 of the text
	running string                        // the SHA-1 of the script that runs
	reads   bool                          // it may only read
	args    []string                      // of the last command; call reuses the memory
}

// How many values a script may have on its stack: more than any command has arguments.
const (
	firstStack = 16 << 10
	mostStack  = 1 << 20
)

// The compiler and fromLua are recursive. A stack overflow would end the process, so the nesting is
// limited.
const (
	longestScript = 64 << 10 // bytes
	deepestReply  = 1000
)

// unsafe are the functions of the base library that reach files, other code or the output.
var unsafe = []string{"collectgarbage", "dofile", "load", "loadfile", "loadstring", "module", "newproxy", "print",
	"require"}

func newScripts(db *database) *scripts {
	s := &scripts{db: db, known: map[string]*lua.FunctionProto{}}
	l := lua.NewState(lua.Options{SkipOpenLibs: true, RegistrySize: firstStack, RegistryMaxSize: mostStack,
		RegistryGrowStep: firstStack})
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString, lua.OpenMath} {
		l.Push(l.NewFunction(open))
		l.Call(0, 0)
	}
	for _, name := range unsafe {
		l.SetGlobal(name, lua.LNil)
	}
	redis := l.NewTable()
	l.SetFuncs(redis, map[string]lua.LGFunction{
		"call":  func(l *lua.LState) int { return s.call(l, true) },
		"pcall": func(l *lua.LState) int { return s.call(l, false) },
	})
	l.SetGlobal("redis", redis)
	l.SetGlobal("KEYS", l.NewTable())
	l.SetGlobal("ARGV", l.NewTable())
	guard := l.NewTable()
	l.SetFuncs(guard, map[string]lua.LGFunction{
		"__newindex": func(l *lua.LState) int {
			l.RaiseError("Script attempted to create global variable '%s'", l.Get(2))
			return 0
		},
		"__index": func(l *lua.LState) int {
			l.RaiseError("Script attempted to access nonexistent global variable '%s'", l.Get(2))
			return 0
		},
	})
	l.SetMetatable(l.G.Global, guard)
	s.state = l
	return s
}

func digest(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// run runs EVAL, EVALSHA, their forms that only read, or SCRIPT. done is false if name is another command.
func (s *scripts) run(name string, args []string) (reply any, done bool) {
	switch name {
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO":
		if len(args) < 2 {
			return wrongNumber(name), true
		}
		command, reads := strings.CutSuffix(name, "_RO")
		s.reads = reads
		if name == "EVALSHA_RO" {
			s.db.reads++
		}
		sha := strings.ToLower(args[0])
		if command == "EVAL" {
			var fail any
			if sha, fail = s.load(args[0]); fail != nil {
				return fail, true
			}
		}
		return s.eval(sha, args[1:]), true
	case "SCRIPT":
		if len(args) < 1 {
			return wrongNumber(name), true
		}
		if !strings.EqualFold(args[0], "FLUSH") {
			return failure("ERR unknown subcommand or wrong number of arguments for 'SCRIPT'"), true
		}
		clear(s.known)
		return ok, true
	}
	return nil, false
}

// load compiles a script, and returns its SHA-1.
func (s *scripts) load(text string) (sha string, fail any) {
	sha = digest(text)
	switch {
	case s.known[sha] != nil:
		return sha, nil
	case len(text) > longestScript:
		return "", failure(fmt.Sprintf("ERR a script of %d bytes is too long: at most %d are allowed", len(text),
			longestScript))
	}
	chunk, err := parse.Parse(strings.NewReader(text), "user_script")
	if err != nil {
		return "", compileError(err)
	}
	proto, err := lua.Compile(chunk, "user_script")
	if err != nil {
		return "", compileError(err)
	}
	s.known[sha] = proto
	return sha, nil
}

func compileError(err error) failure {
	return failure("ERR Error compiling script (new function): " + oneLine(err.Error()))
}

func oneLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// eval runs a script. args begins with the number of keys.
func (s *scripts) eval(sha string, args []string) any {
	proto := s.known[sha]
	if proto == nil {
		return noScript
	}
	keys, err := strconv.Atoi(args[0])
	args = args[1:]
	switch {
	case err != nil:
		return notInteger
	case keys < 0:
		return failure("ERR Number of keys can't be negative")
	case keys > len(args):
		return failure("ERR Number of keys can't be greater than number of args")
	}
	l := s.state
	l.G.Global.RawSetString("KEYS", list(l, args[:keys]))
	l.G.Global.RawSetString("ARGV", list(l, args[keys:]))
	s.running = sha
	l.Push(l.NewFunctionFromProto(proto))
	if err := l.PCall(0, 1, nil); err != nil {
		l.SetTop(0)
		return s.raised(err)
	}
	reply, whole := fromLua(l.Get(-1), 0)
	l.SetTop(0)
	if !whole {
		return failure("ERR reached lua stack limit")
	}
	return reply
}

// raised returns the reply to a script that has failed.
func (s *scripts) raised(err error) failure {
	message := err.Error()
	var raised *lua.ApiError
	if errors.As(err, &raised) && raised.Object != nil {
		if t, isTable := raised.Object.(*lua.LTable); isTable {
			message = t.RawGetString("err").String()
		} else {
			message = raised.Object.String()
		}
	}
	if message = oneLine(message); !hasCode(message) {
		message = "ERR " + message
	}
	return failure(fmt.Sprintf("%s script: %s, on @user_script.", message, s.running))
}

// hasCode reports whether an error begins with a code in capitals.
func hasCode(message string) bool {
	code, _, more := strings.Cut(message, " ")
	return more && code != "" && code == strings.ToUpper(code) && code[0] >= 'A' && code[0] <= 'Z'
}

func list(l *lua.LState, values []string) *lua.LTable {
	t := l.CreateTable(len(values), 0)
	for _, v := range values {
		t.Append(lua.LString(v))
	}
	return t
}

// call is redis.call and redis.pcall: raise tells whether a failure ends the script.
func (s *scripts) call(l *lua.LState, raise bool) int {
	args := s.args[:0]
	for i := 1; i <= l.GetTop(); i++ {
		switch v := l.Get(i).(type) {
		case lua.LString:
			args = append(args, string(v))
		case lua.LNumber:
			args = append(args, v.String())
		default:
			l.RaiseError("Lua redis lib command arguments must be strings or integers")
		}
	}
	if len(args) == 0 {
		l.RaiseError("Please specify at least one argument for this redis.call")
	}
	reply := any(failure("ERR Write commands are not allowed from read-only scripts."))
	if !s.reads || !writes[strings.ToUpper(args[0])] {
		reply = s.db.run(args[0], args[1:])
	}
	clear(args)
	s.args = args
	answer := toLua(l, reply)
	if _, failed := reply.(failure); failed && raise {
		l.Error(answer, 1)
	}
	l.Push(answer)
	return 1
}

// toLua converts a reply as Redis does: nil becomes false.
func toLua(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case string:
		return lua.LString(r)
	case int:
		return lua.LNumber(r)
	case []any:
		t := l.CreateTable(len(r), 0)
		for _, one := range r {
			t.Append(toLua(l, one))
		}
		return t
	case status:
		t := l.NewTable()
		t.RawSetString("ok", lua.LString(r))
		return t
	case failure:
		t := l.NewTable()
		t.RawSetString("err", lua.LString(r))
		return t
	}
	return lua.LFalse
}

// fromLua converts what a script returns, as Redis does: a list ends before its first nil, and a
// number loses its fraction. whole is false if lists are nested too deep; a list may contain itself.
func fromLua(v lua.LValue, depth int) (reply any, whole bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return int(v), true
	case lua.LBool:
		if v {
			return 1, true
		}
	case *lua.LTable:
		if text, is := v.RawGetString("err").(lua.LString); is {
			return failure(text), true
		}
		if text, is := v.RawGetString("ok").(lua.LString); is {
			return status(text), true
		}
		if depth == deepestReply {
			return nil, false
		}
		list := make([]any, 0, v.Len())
		for i := 1; ; i++ {
			value := v.RawGetInt(i)
			if value == lua.LNil {
				return list, true
			}
			one, whole := fromLua(value, depth+1)
			if !whole {
				return nil, false
			}
			list = append(list, one)
		}
	}
	return nil, true
}
