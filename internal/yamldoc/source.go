package yamldoc

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Source is a mapping as it was written: its text without what is around it and without the indentation that all of it
// has, comments between its keys included. lines are the file's, in the order of Place. For other values it is empty.
//
// It ends where the mapping does: one in braces with its brace, one in lines before the first line that is indented less.
func (n Node) Source(lines []string) string {
	at := n.Place()
	if at.Line > len(lines) {
		return ""
	}
	first := []rune(lines[at.Line-1])
	if at.Column-1 > len(first) {
		return ""
	}
	rest := append([]string{string(first[at.Column-1:])}, lines[at.Line:]...)
	switch node := n.node.(type) {
	case *ast.MappingNode:
		if node.IsFlowStyle {
			return braces(strings.Join(rest, "\n"))
		}
	case *ast.MappingValueNode:
	default:
		return ""
	}
	return block(rest, at.Column-1)
}

// block takes the lines of a mapping whose keys are indented by indent; the first has lost that already.
func block(lines []string, indent int) string {
	var kept []string
	end := 0 // how many lines there are up to the last that is indented
	for i, line := range lines {
		text := strings.TrimLeft(line, " ")
		inside := i == 0 || len(line)-len(text) >= indent
		if text != "" && text[0] != '#' && !inside {
			break
		}
		switch {
		case i == 0:
		case inside:
			line = line[indent:]
		default: // an empty line, or a comment that is indented less: part of the mapping only if more of it follows
			line = text
		}
		kept = append(kept, line)
		if inside && text != "" {
			end = len(kept)
		}
	}
	return strings.Join(kept[:end], "\n")
}

// braces takes the text up to the brace that closes the one it begins with, all of it if there is none.
func braces(text string) string {
	depth, quote, closed, escaped, comment := 0, rune(0), 0, false, false
	before, value := ' ', rune(0) // the character before, and the last one that is no space
	for i, r := range text {
		switch {
		case comment:
			comment = r != '\n'
		case escaped:
			escaped = false
		case quote != 0:
			escaped = quote == '"' && r == '\\'
			if r == quote {
				quote, closed = 0, i
			}
		case r == '\'' && before == '\'' && closed == i-1:
			quote = r // two of them are one of the text's
		case r == '#' && (before == ' ' || before == '\n' || before == '\t'):
			comment = true
		case (r == '"' || r == '\'') && strings.ContainsRune("{[,:", value):
			quote = r // anywhere else it is part of a plain text
		case r == '{' || r == '[':
			depth++
		case r == '}' || r == ']':
			if depth--; depth == 0 {
				return text[:i+1]
			}
		}
		before = r
		if !comment && r != ' ' && r != '\n' && r != '\t' {
			value = r
		}
	}
	return text
}
