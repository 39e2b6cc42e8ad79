"""Tables of `grammar.lark`; written by `python -m agym.dsl.expression.grammar`, not by hand.

A state maps a terminal to what is done on it and a rule's name to the state that follows it: a number from 0 is a
state to go to, a negative one `n` reduces by rule `~n`.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FINAL", "IGNORED", "KEYWORDS", "RULES", "STATES", "TOKENS"]

# fmt: off

TOKENS: Mapping[str, str] = {
    "COMMA": ",",
    "COMPARE": "[<>=!]=|[<>]",
    "LPAR": "\\(",
    "MINUS": "\\-",
    "MULTIPLY": "\\/\\/|[\\/%]|\\*(?!\\*)",
    "NAME": "[A-Za-z_][A-Za-z0-9_]*",
    "NUMBER": "(?:(?:0|[1-9][0-9]*)(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.])",
    "PLUS": "\\+",
    "POWER": "\\*\\*",
    "RPAR": "\\)",
    "SPACE": "[ \t\r\n]+",
    "TEXT": "'[^'\n]*'|\"[^\"\n]*\"",
}

IGNORED = "SPACE"

KEYWORDS: Mapping[str, str] = {
    "and": "AND",
    "else": "ELSE",
    "false": "FALSE",
    "if": "IF",
    "in": "IN",
    "not": "NOT",
    "or": "OR",
    "true": "TRUE",
}

RULES: tuple[tuple[str, int, str], ...] = (
    ("literal", 1, "boolean"),
    ("atom", 1, "name"),
    ("literal", 1, "number"),
    ("literal", 1, "text"),
    ("power", 1, ""),
    ("either", 1, ""),
    ("comparison", 1, ""),
    ("start", 1, ""),
    ("negation", 1, ""),
    ("choice", 1, ""),
    ("term", 1, ""),
    ("atom", 1, ""),
    ("both", 1, ""),
    ("factor", 1, ""),
    ("sum", 1, ""),
    ("factor", 2, "unary"),
    ("negation", 2, "unary"),
    ("atom", 3, "parentheses"),
    ("atom", 3, "empty_call"),
    ("arguments", 1, "first"),
    ("power", 3, "binary"),
    ("both", 3, "logic"),
    ("chain", 3, "chain"),
    ("either", 3, "logic"),
    ("chain", 3, "compare"),
    ("sum", 3, "binary"),
    ("term", 3, "binary"),
    ("atom", 4, "call"),
    ("value", 1, ""),
    ("values", 1, "first"),
    ("arguments", 3, "further"),
    ("choice", 5, "choice"),
    ("value", 2, "unary"),
    ("comparison", 5, "member"),
    ("values", 3, "further"),
    ("comparison", 6, "not_member"),
)

FINAL = 20

STATES: tuple[Mapping[str, int], ...] = (
    {  # 0
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NOT": 5, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9,
        "atom": 10, "both": 11, "chain": 12, "choice": 13, "comparison": 14, "either": 15, "factor": 16,
        "literal": 17, "negation": 18, "power": 19, "start": 20, "sum": 21, "term": 22,
    },
    {  # 1
        "$END": -1, "AND": -1, "COMMA": -1, "COMPARE": -1, "ELSE": -1, "IF": -1, "IN": -1, "MINUS": -1,
        "MULTIPLY": -1, "NOT": -1, "OR": -1, "PLUS": -1, "POWER": -1, "RPAR": -1,
    },
    {  # 2
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NOT": 5, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9,
        "atom": 10, "both": 11, "chain": 12, "choice": 23, "comparison": 14, "either": 15, "factor": 16,
        "literal": 17, "negation": 18, "power": 19, "sum": 21, "term": 22,
    },
    {  # 3
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9, "atom": 10,
        "factor": 24, "literal": 17, "power": 19,
    },
    {  # 4
        "$END": -2, "AND": -2, "COMMA": -2, "COMPARE": -2, "ELSE": -2, "IF": -2, "IN": -2, "LPAR": 25, "MINUS": -2,
        "MULTIPLY": -2, "NOT": -2, "OR": -2, "PLUS": -2, "POWER": -2, "RPAR": -2,
    },
    {  # 5
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NOT": 5, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9,
        "atom": 10, "chain": 12, "comparison": 14, "factor": 16, "literal": 17, "negation": 26, "power": 19,
        "sum": 21, "term": 22,
    },
    {  # 6
        "$END": -3, "AND": -3, "COMMA": -3, "COMPARE": -3, "ELSE": -3, "IF": -3, "IN": -3, "MINUS": -3,
        "MULTIPLY": -3, "NOT": -3, "OR": -3, "PLUS": -3, "POWER": -3, "RPAR": -3,
    },
    {  # 7
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9, "atom": 10,
        "factor": 27, "literal": 17, "power": 19,
    },
    {  # 8
        "$END": -4, "AND": -4, "COMMA": -4, "COMPARE": -4, "ELSE": -4, "IF": -4, "IN": -4, "MINUS": -4,
        "MULTIPLY": -4, "NOT": -4, "OR": -4, "PLUS": -4, "POWER": -4, "RPAR": -4,
    },
    {  # 9
        "$END": -1, "AND": -1, "COMMA": -1, "COMPARE": -1, "ELSE": -1, "IF": -1, "IN": -1, "MINUS": -1,
        "MULTIPLY": -1, "NOT": -1, "OR": -1, "PLUS": -1, "POWER": -1, "RPAR": -1,
    },
    {  # 10
        "$END": -5, "AND": -5, "COMMA": -5, "COMPARE": -5, "ELSE": -5, "IF": -5, "IN": -5, "MINUS": -5,
        "MULTIPLY": -5, "NOT": -5, "OR": -5, "PLUS": -5, "POWER": 28, "RPAR": -5,
    },
    {  # 11
        "$END": -6, "AND": 29, "COMMA": -6, "ELSE": -6, "IF": -6, "OR": -6, "RPAR": -6,
    },
    {  # 12
        "$END": -7, "AND": -7, "COMMA": -7, "COMPARE": 30, "ELSE": -7, "IF": -7, "OR": -7, "RPAR": -7,
    },
    {  # 13
        "$END": -8,
    },
    {  # 14
        "$END": -9, "AND": -9, "COMMA": -9, "ELSE": -9, "IF": -9, "OR": -9, "RPAR": -9,
    },
    {  # 15
        "$END": -10, "COMMA": -10, "IF": 31, "OR": 32, "RPAR": -10,
    },
    {  # 16
        "$END": -11, "AND": -11, "COMMA": -11, "COMPARE": -11, "ELSE": -11, "IF": -11, "IN": -11, "MINUS": -11,
        "MULTIPLY": -11, "NOT": -11, "OR": -11, "PLUS": -11, "RPAR": -11,
    },
    {  # 17
        "$END": -12, "AND": -12, "COMMA": -12, "COMPARE": -12, "ELSE": -12, "IF": -12, "IN": -12, "MINUS": -12,
        "MULTIPLY": -12, "NOT": -12, "OR": -12, "PLUS": -12, "POWER": -12, "RPAR": -12,
    },
    {  # 18
        "$END": -13, "AND": -13, "COMMA": -13, "ELSE": -13, "IF": -13, "OR": -13, "RPAR": -13,
    },
    {  # 19
        "$END": -14, "AND": -14, "COMMA": -14, "COMPARE": -14, "ELSE": -14, "IF": -14, "IN": -14, "MINUS": -14,
        "MULTIPLY": -14, "NOT": -14, "OR": -14, "PLUS": -14, "RPAR": -14,
    },
    {},  # 20
    {  # 21
        "$END": -7, "AND": -7, "COMMA": -7, "COMPARE": 33, "ELSE": -7, "IF": -7, "IN": 34, "MINUS": 35, "NOT": 36,
        "OR": -7, "PLUS": 37, "RPAR": -7,
    },
    {  # 22
        "$END": -15, "AND": -15, "COMMA": -15, "COMPARE": -15, "ELSE": -15, "IF": -15, "IN": -15, "MINUS": -15,
        "MULTIPLY": 38, "NOT": -15, "OR": -15, "PLUS": -15, "RPAR": -15,
    },
    {  # 23
        "RPAR": 39,
    },
    {  # 24
        "$END": -16, "AND": -16, "COMMA": -16, "COMPARE": -16, "ELSE": -16, "IF": -16, "IN": -16, "MINUS": -16,
        "MULTIPLY": -16, "NOT": -16, "OR": -16, "PLUS": -16, "RPAR": -16,
    },
    {  # 25
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NOT": 5, "NUMBER": 6, "PLUS": 7, "RPAR": 40, "TEXT": 8,
        "TRUE": 9, "arguments": 41, "atom": 10, "both": 11, "chain": 12, "choice": 42, "comparison": 14, "either": 15,
        "factor": 16, "literal": 17, "negation": 18, "power": 19, "sum": 21, "term": 22,
    },
    {  # 26
        "$END": -17, "AND": -17, "COMMA": -17, "ELSE": -17, "IF": -17, "OR": -17, "RPAR": -17,
    },
    {  # 27
        "$END": -16, "AND": -16, "COMMA": -16, "COMPARE": -16, "ELSE": -16, "IF": -16, "IN": -16, "MINUS": -16,
        "MULTIPLY": -16, "NOT": -16, "OR": -16, "PLUS": -16, "RPAR": -16,
    },
    {  # 28
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9, "atom": 10,
        "factor": 43, "literal": 17, "power": 19,
    },
    {  # 29
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NOT": 5, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9,
        "atom": 10, "chain": 12, "comparison": 14, "factor": 16, "literal": 17, "negation": 44, "power": 19,
        "sum": 21, "term": 22,
    },
    {  # 30
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9, "atom": 10,
        "factor": 16, "literal": 17, "power": 19, "sum": 45, "term": 22,
    },
    {  # 31
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NOT": 5, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9,
        "atom": 10, "both": 11, "chain": 12, "comparison": 14, "either": 46, "factor": 16, "literal": 17,
        "negation": 18, "power": 19, "sum": 21, "term": 22,
    },
    {  # 32
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NOT": 5, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9,
        "atom": 10, "both": 47, "chain": 12, "comparison": 14, "factor": 16, "literal": 17, "negation": 18,
        "power": 19, "sum": 21, "term": 22,
    },
    {  # 33
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9, "atom": 10,
        "factor": 16, "literal": 17, "power": 19, "sum": 48, "term": 22,
    },
    {  # 34
        "LPAR": 49,
    },
    {  # 35
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9, "atom": 10,
        "factor": 16, "literal": 17, "power": 19, "term": 50,
    },
    {  # 36
        "IN": 51,
    },
    {  # 37
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9, "atom": 10,
        "factor": 16, "literal": 17, "power": 19, "term": 52,
    },
    {  # 38
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9, "atom": 10,
        "factor": 53, "literal": 17, "power": 19,
    },
    {  # 39
        "$END": -18, "AND": -18, "COMMA": -18, "COMPARE": -18, "ELSE": -18, "IF": -18, "IN": -18, "MINUS": -18,
        "MULTIPLY": -18, "NOT": -18, "OR": -18, "PLUS": -18, "POWER": -18, "RPAR": -18,
    },
    {  # 40
        "$END": -19, "AND": -19, "COMMA": -19, "COMPARE": -19, "ELSE": -19, "IF": -19, "IN": -19, "MINUS": -19,
        "MULTIPLY": -19, "NOT": -19, "OR": -19, "PLUS": -19, "POWER": -19, "RPAR": -19,
    },
    {  # 41
        "COMMA": 54, "RPAR": 55,
    },
    {  # 42
        "COMMA": -20, "RPAR": -20,
    },
    {  # 43
        "$END": -21, "AND": -21, "COMMA": -21, "COMPARE": -21, "ELSE": -21, "IF": -21, "IN": -21, "MINUS": -21,
        "MULTIPLY": -21, "NOT": -21, "OR": -21, "PLUS": -21, "RPAR": -21,
    },
    {  # 44
        "$END": -22, "AND": -22, "COMMA": -22, "ELSE": -22, "IF": -22, "OR": -22, "RPAR": -22,
    },
    {  # 45
        "$END": -23, "AND": -23, "COMMA": -23, "COMPARE": -23, "ELSE": -23, "IF": -23, "MINUS": 35, "OR": -23,
        "PLUS": 37, "RPAR": -23,
    },
    {  # 46
        "ELSE": 56, "OR": 32,
    },
    {  # 47
        "$END": -24, "AND": 29, "COMMA": -24, "ELSE": -24, "IF": -24, "OR": -24, "RPAR": -24,
    },
    {  # 48
        "$END": -25, "AND": -25, "COMMA": -25, "COMPARE": -25, "ELSE": -25, "IF": -25, "MINUS": 35, "OR": -25,
        "PLUS": 37, "RPAR": -25,
    },
    {  # 49
        "FALSE": 1, "MINUS": 57, "NUMBER": 6, "TEXT": 8, "TRUE": 9, "literal": 58, "value": 59, "values": 60,
    },
    {  # 50
        "$END": -26, "AND": -26, "COMMA": -26, "COMPARE": -26, "ELSE": -26, "IF": -26, "IN": -26, "MINUS": -26,
        "MULTIPLY": 38, "NOT": -26, "OR": -26, "PLUS": -26, "RPAR": -26,
    },
    {  # 51
        "LPAR": 61,
    },
    {  # 52
        "$END": -26, "AND": -26, "COMMA": -26, "COMPARE": -26, "ELSE": -26, "IF": -26, "IN": -26, "MINUS": -26,
        "MULTIPLY": 38, "NOT": -26, "OR": -26, "PLUS": -26, "RPAR": -26,
    },
    {  # 53
        "$END": -27, "AND": -27, "COMMA": -27, "COMPARE": -27, "ELSE": -27, "IF": -27, "IN": -27, "MINUS": -27,
        "MULTIPLY": -27, "NOT": -27, "OR": -27, "PLUS": -27, "RPAR": -27,
    },
    {  # 54
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NOT": 5, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9,
        "atom": 10, "both": 11, "chain": 12, "choice": 62, "comparison": 14, "either": 15, "factor": 16,
        "literal": 17, "negation": 18, "power": 19, "sum": 21, "term": 22,
    },
    {  # 55
        "$END": -28, "AND": -28, "COMMA": -28, "COMPARE": -28, "ELSE": -28, "IF": -28, "IN": -28, "MINUS": -28,
        "MULTIPLY": -28, "NOT": -28, "OR": -28, "PLUS": -28, "POWER": -28, "RPAR": -28,
    },
    {  # 56
        "FALSE": 1, "LPAR": 2, "MINUS": 3, "NAME": 4, "NOT": 5, "NUMBER": 6, "PLUS": 7, "TEXT": 8, "TRUE": 9,
        "atom": 10, "both": 11, "chain": 12, "choice": 63, "comparison": 14, "either": 15, "factor": 16,
        "literal": 17, "negation": 18, "power": 19, "sum": 21, "term": 22,
    },
    {  # 57
        "NUMBER": 64,
    },
    {  # 58
        "COMMA": -29, "RPAR": -29,
    },
    {  # 59
        "COMMA": -30, "RPAR": -30,
    },
    {  # 60
        "COMMA": 65, "RPAR": 66,
    },
    {  # 61
        "FALSE": 1, "MINUS": 57, "NUMBER": 6, "TEXT": 8, "TRUE": 9, "literal": 58, "value": 59, "values": 67,
    },
    {  # 62
        "COMMA": -31, "RPAR": -31,
    },
    {  # 63
        "$END": -32, "COMMA": -32, "RPAR": -32,
    },
    {  # 64
        "COMMA": -33, "RPAR": -33,
    },
    {  # 65
        "FALSE": 1, "MINUS": 57, "NUMBER": 6, "TEXT": 8, "TRUE": 9, "literal": 58, "value": 68,
    },
    {  # 66
        "$END": -34, "AND": -34, "COMMA": -34, "ELSE": -34, "IF": -34, "OR": -34, "RPAR": -34,
    },
    {  # 67
        "COMMA": 65, "RPAR": 69,
    },
    {  # 68
        "COMMA": -35, "RPAR": -35,
    },
    {  # 69
        "$END": -36, "AND": -36, "COMMA": -36, "ELSE": -36, "IF": -36, "OR": -36, "RPAR": -36,
    },
)
