# bash completion of agym; to use it: source <(agym completion bash)
_agym() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD - 1]}}" command="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${{COMP_WORDS[i]}}" in
      {names}) command="${{COMP_WORDS[i]}}"; break ;;
    esac
  done
  COMPREPLY=()
  case "$command $previous" in
{values}
  esac
  case "$command $current" in
    " "*) COMPREPLY=($(compgen -W {all_names} -- "$current")) ;;
{options}
{words}
  esac
}}
complete -o bashdefault -o default -F _agym agym
