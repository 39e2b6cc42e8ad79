#compdef agym
# zsh completion of agym; to use it: agym completion zsh > a folder of $fpath, as _agym
_agym() {{
  local -a commands
  commands=(
{names}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case "$words[1]" in
{cases}
  esac
}}
if [[ "$funcstack[1]" == _agym ]]; then _agym "$@"; else compdef _agym agym; fi
